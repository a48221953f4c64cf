package scenarios

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An assertion is "PATH OP OPERAND" or "PATH exists" or "PATH absent". OP is one of
// == != >= <= > < and has (of a text that contains another, or a list that holds a value or such a text).
// The operand is JSON (0.9, "sdfn", true, [0,1]), a path, or NUMBER * PATH.
//
// A PATH begins with a document's name and walks by ".name", "[3]", "[key=value]" (the first
// element whose key is that) and ".#" (the length): status.nics[name=eth0].queues.#
type assertion struct {
	text    string
	left    path
	op      string
	literal any     // of the right side, when right is nil
	right   path    // else a path
	factor  float64 // times the right path
}

type path []step

type step struct {
	name       string // of a member; "#" is the length
	index      int    // of an element, when name is ""
	key, value string // of the element to choose, when key is not ""
}

var operators = []string{"==", "!=", ">=", "<=", ">", "<", "has"}

// leftPattern parts the left path, which has blanks only between brackets, from the rest.
var leftPattern = regexp.MustCompile(`^((?:[^ \[]|\[[^\]]*\])+) +(.*)$`)

func parseAssertion(text string) (assertion, error) {
	a := assertion{text: text, factor: 1}
	m := leftPattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return a, fmt.Errorf("assertion %q: no operator", text)
	}
	left, rest := m[1], m[2]
	var err error
	if a.left, err = parsePath(left); err != nil {
		return a, fmt.Errorf("assertion %q: %w", text, err)
	}
	rest = strings.TrimSpace(rest)
	if rest == "exists" || rest == "absent" {
		a.op = rest
		return a, nil
	}
	op, operand, ok := strings.Cut(rest, " ")
	a.op = op
	known := false
	for _, o := range operators {
		known = known || o == op
	}
	if !ok || !known {
		return a, fmt.Errorf("assertion %q: operator %q is not one of %s, exists, absent", text, op, strings.Join(operators, " "))
	}
	operand = strings.TrimSpace(operand)
	if json.Unmarshal([]byte(operand), &a.literal) == nil {
		return a, nil
	}
	if f, p, ok := strings.Cut(operand, " * "); ok {
		if a.factor, err = strconv.ParseFloat(f, 64); err != nil {
			return a, fmt.Errorf("assertion %q: factor: %w", text, err)
		}
		operand = strings.TrimSpace(p)
	}
	if a.right, err = parsePath(operand); err != nil {
		return a, fmt.Errorf("assertion %q: %w", text, err)
	}
	return a, nil
}

var stepPattern = regexp.MustCompile(`^(?:\.?([A-Za-z0-9_#-]+)|\[([0-9]+)\]|\[([A-Za-z0-9_-]+)=([^\]]*)\])`)

func parsePath(text string) (path, error) {
	var p path
	for rest := text; rest != ""; {
		m := stepPattern.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("path %q: cannot read %q", text, rest)
		}
		switch {
		case m[1] != "":
			p = append(p, step{name: m[1]})
		case m[2] != "":
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, fmt.Errorf("path %q: %w", text, err)
			}
			p = append(p, step{index: n})
		default:
			p = append(p, step{key: m[3], value: m[4]})
		}
		rest = rest[len(m[0]):]
	}
	if len(p) == 0 || p[0].name == "" {
		return nil, fmt.Errorf("path %q: it begins with a document's name", text)
	}
	return p, nil
}

// get walks a path; ok is false where it leads nowhere.
func (p path) get(docs map[string]any) (v any, ok bool) {
	v = docs
	for i, s := range p {
		switch {
		case i == 0:
			v, ok = docs[s.name]
		case s.name == "#":
			switch x := v.(type) {
			case []any:
				v, ok = float64(len(x)), true
			case map[string]any:
				v, ok = float64(len(x)), true
			default:
				ok = false
			}
		case s.name != "":
			var m map[string]any
			if m, ok = v.(map[string]any); ok {
				v, ok = m[s.name]
			}
		case s.key != "":
			list, _ := v.([]any)
			ok = false
			for _, e := range list {
				if m, isMap := e.(map[string]any); isMap && fmt.Sprint(m[s.key]) == s.value {
					v, ok = m, true
					break
				}
			}
		default:
			list, _ := v.([]any)
			if ok = s.index < len(list); ok {
				v = list[s.index]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

// check returns nil, or what was seen instead.
func (a assertion) check(docs map[string]any) error {
	got, ok := a.left.get(docs)
	switch {
	case a.op == "exists" && ok, a.op == "absent" && !ok:
		return nil
	case a.op == "exists":
		return fmt.Errorf("%s: it is absent", a.text)
	case a.op == "absent":
		return fmt.Errorf("%s: it is %s", a.text, short(got))
	case !ok:
		return fmt.Errorf("%s: the left side is absent", a.text)
	}
	want := a.literal
	if a.right != nil {
		if want, ok = a.right.get(docs); !ok {
			return fmt.Errorf("%s: the right side is absent", a.text)
		}
		if n, isNumber := want.(float64); isNumber {
			want = n * a.factor
		}
	}
	if !holds(got, a.op, want) {
		return fmt.Errorf("%s: it is %s%s", a.text, short(got), against(a, want))
	}
	return nil
}

// against shows the right side where it is not in the text already.
func against(a assertion, want any) string {
	if a.right == nil {
		return ""
	}
	return " against " + short(want)
}

func holds(got any, op string, want any) bool {
	switch op {
	case "==":
		return canonical(got) == canonical(want)
	case "!=":
		return canonical(got) != canonical(want)
	case "has":
		switch x := got.(type) {
		case string:
			return strings.Contains(x, fmt.Sprint(want))
		case []any:
			for _, e := range x {
				text, isText := e.(string)
				part, isPart := want.(string)
				if canonical(e) == canonical(want) || isText && isPart && strings.Contains(text, part) {
					return true
				}
			}
		}
		return false
	}
	x, ok := got.(float64)
	y, ok2 := want.(float64)
	if !ok || !ok2 {
		return false
	}
	switch op {
	case ">=":
		return x >= y
	case "<=":
		return x <= y
	case ">":
		return x > y
	default:
		return x < y
	}
}

// canonical is a value as JSON with sorted keys.
func canonical(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// short is canonical, cut for people.
func short(v any) string {
	const most = 300
	s := canonical(v)
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
