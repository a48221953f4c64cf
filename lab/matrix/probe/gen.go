package main

//go:generate go tool bpf2go -go-package main -target bpfel,bpfeb -type tally ref ref.bpf.c -- -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror
