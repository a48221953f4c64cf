package cpuset

import (
	"fmt"
	"strings"
)

// maxText bounds the work on hostile lists; every other one of Limit CPUs in list text
// is shorter.
const maxText = 256 << 10

// trim removes what surrounds a set in kernel files: blanks, newlines and the
// NUL some empty sysfs lists print before the newline.
func trim(s string) string { return strings.Trim(s, " \t\r\n\x00") }

// isNone reports the spellings of "no CPU" that files hold besides "": sysfs
// prints "(null)" for cpu/nohz_full when the kernel was booted without it.
func isNone(s string) bool { return s == "" || s == "(null)" }

// ParseList reads list text: "0-3,8", "0-1023:2/4" (the first 2 of each 4), as
// bitmap_parselist does; empty text, "(null)" and surrounding blanks and NULs are
// fine. "all" and "N" (the last CPU) depend on how many CPUs the host has: see
// ParseListOf. Errors wrap ErrSyntax or ErrRange.
func ParseList(s string) (Set, error) { return parseList(s, -1) }

// ParseListOf reads list text as kernel parameters spell it on a host of nbits
// possible CPUs: "N" is nbits-1, "all" is every one of them, and
// CPUs ≥ nbits are an error, as in bitmap_parselist.
func ParseListOf(s string, nbits int) (Set, error) { return parseList(s, nbits) }

func parseList(text string, nbits int) (Set, error) {
	s := trim(text)
	if isNone(s) {
		return Set{}, nil
	}
	if len(s) > maxText {
		return Set{}, fmt.Errorf("parse CPU list %s: %w: %d bytes", quote(text), ErrRange, len(s))
	}
	var b builder
	for s != "" {
		var part string
		// Regions are separated by commas or blanks, empty ones are skipped
		// (bitmap_find_region).
		if i := strings.IndexAny(s, ", \t\n"); i >= 0 {
			part, s = s[:i], s[i+1:]
		} else {
			part, s = s, ""
		}
		if part == "" {
			continue
		}
		if err := b.region(part, nbits); err != nil {
			return Set{}, fmt.Errorf("parse CPU list %s: %w", quote(text), err)
		}
	}
	return fromWords(b), nil
}

// region adds first[-last[:used/size]].
func (b *builder) region(part string, nbits int) error {
	p := part
	first, last := 0, 0
	if rest, ok := strings.CutPrefix(strings.ToLower(p), "all"); ok && nbits > 0 {
		first, last, p = 0, nbits-1, rest
	} else {
		var err error
		if first, p, err = number(p, nbits); err != nil {
			return err
		}
		last = first
		if strings.HasPrefix(p, "-") {
			if last, p, err = number(p[1:], nbits); err != nil {
				return err
			}
		} else if p != "" {
			return fmt.Errorf("%w: %q", ErrSyntax, part)
		}
	}
	used, size := last-first+1, last-first+1
	if strings.HasPrefix(p, ":") {
		var err error
		if used, p, err = number(p[1:], 0); err != nil {
			return err
		}
		if !strings.HasPrefix(p, "/") {
			return fmt.Errorf("%w: %q", ErrSyntax, part)
		}
		if size, p, err = number(p[1:], 0); err != nil {
			return err
		}
		if size == 0 || used > size {
			return fmt.Errorf("%w: group of %d in %d", ErrSyntax, used, size)
		}
	}
	if p != "" || last < first {
		return fmt.Errorf("%w: %q", ErrSyntax, part)
	}
	if nbits > 0 && last >= nbits {
		return fmt.Errorf("%w: %d of %d", ErrRange, last, nbits)
	}
	for group := first; group <= last; group += size {
		for c := group; c < group+used && c <= last; c++ {
			b.add(c)
		}
	}
	return nil
}

// number reads a decimal number below Limit, or "N" where nbits is positive,
// and what follows it.
func number(s string, nbits int) (int, string, error) {
	if nbits > 0 && strings.HasPrefix(s, "N") {
		return nbits - 1, s[1:], nil
	}
	n, i := 0, 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		if n = n*10 + int(s[i]-'0'); n >= Limit {
			return 0, "", fmt.Errorf("%w: %s", ErrRange, quote(s))
		}
	}
	if i == 0 {
		return 0, "", fmt.Errorf("%w: %s", ErrSyntax, quote(s))
	}
	return n, s[i:], nil
}

// ParseMask reads mask text: hexadecimal groups of up to 32 bits, highest
// first, parted by commas; each group but the first counts 32 bits however many
// digits it has (bitmap_parse). One unbroken run of digits of any length is
// read too, as /proc/irq/*/smp_affinity takes it from people. Leading zeros do
// not matter. Errors wrap ErrSyntax or ErrRange.
func ParseMask(text string) (Set, error) {
	s := trim(text)
	s = strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	if isNone(s) {
		return Set{}, nil
	}
	var b builder
	base := 0
	grouped := strings.Contains(s, ",")
	for more := true; more; {
		var group string
		if i := strings.LastIndexByte(s, ','); i >= 0 {
			group, s = s[i+1:], s[:i]
		} else {
			group, s, more = s, "", false
		}
		if group == "" || grouped && len(group) > 8 {
			return Set{}, fmt.Errorf("parse CPU mask %s: %w: group %s", quote(text), ErrSyntax, quote(group))
		}
		for i := range len(group) {
			digit, ok := unhex(group[len(group)-1-i])
			if !ok {
				return Set{}, fmt.Errorf("parse CPU mask %s: %w", quote(text), ErrSyntax)
			}
			for bit := range 4 {
				if digit>>bit&1 == 0 {
					continue
				}
				cpu := base + 4*i + bit
				if cpu >= Limit {
					return Set{}, fmt.Errorf("parse CPU mask %s: %w: %d", quote(text), ErrRange, cpu)
				}
				b.add(cpu)
			}
		}
		base += 32
	}
	return fromWords(b), nil
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// quote shortens hostile text for an error.
func quote(s string) string {
	if len(s) > 64 {
		return fmt.Sprintf("%q…", s[:64])
	}
	return fmt.Sprintf("%q", s)
}
