package bpf

// The objects and their Go types, rebuilt byte for byte by clang 14 from any
// folder: bpf2go maps the folder out of the debug information. Both byte orders,
// one object each: the programs use no CPU registers, only BTF.
//
//go:generate go tool bpf2go -go-package bpf -target bpfel,bpfeb -type context -type napi_key -type napi_stat -type irq_key -type irq_stat -type latency -type run_stat -type cpu_stat rx rx.bpf.c -- -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror
//go:generate go tool bpf2go -go-package bpf -target bpfel,bpfeb -type packet_stage -type xdp_outcome -type xdp_key -type drop_key -type packet_events -type stage_key -type stage_stat -type packet_cpu packet packet.bpf.c -- -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror
//go:generate go tool bpf2go -go-package bpf -target bpfel,bpfeb -type flow_type -type class -type xfrm -type device_key -type config -type load -type device_stat -type flow_key -type flow -type spread_cpu spread spread.bpf.c -- -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror
//go:generate go tool bpf2go -go-package bpf -target bpfel,bpfeb -type profile_context -type profile_key -type profile_cpu profile profile.bpf.c -- -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror
