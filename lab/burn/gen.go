package burn

//go:generate go tool bpf2go -go-package burn -target bpfel,bpfeb -type count burn burn.bpf.c -- -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror
