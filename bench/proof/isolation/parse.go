package isolation

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Parse reads a history, one transaction in a line:
//
//	t1 s1 [0,10] commit: append x 1, read y [2 3]
//	t2 s2 [5,] unknown: write z 7, read z 7, read w nil
//	t3 s1 [11ms,12ms] commit ts=42.1 final: read x []
//	t4 s3 [13,14] commit snapshot=30.0: read z 7
//
// that is: name, session, begin and end (in nanoseconds, or with a unit; nothing for a transaction
// that did not end), outcome (commit, abort, unknown), marks, operations. A list is in brackets;
// nil is absence. Words with other characters than letters, digits and - _ . / are quoted as in Go,
// and so is a value called nil. Empty lines and what follows a # at the beginning of a line are
// left out. String of a Transaction writes what Parse reads.
func Parse(text string) ([]Transaction, error) {
	var history []Transaction
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		t, err := parseTransaction(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		history = append(history, t)
	}
	return history, nil
}

// token is a word, or one of the characters [ ] , : =
type token struct {
	text   string
	quoted bool
	mark   bool
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
		c == '_' || c == '.' || c == '/'
}

func tokens(line string) ([]token, error) {
	var list []token
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case c == ' ' || c == '\t':
			i++
		case strings.IndexByte("[],:=", c) >= 0:
			list = append(list, token{text: line[i : i+1], mark: true})
			i++
		case c == '"':
			quoted, err := strconv.QuotedPrefix(line[i:])
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line[i:], err)
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", quoted, err)
			}
			list = append(list, token{text: word, quoted: true})
			i += len(quoted)
		case plain(c):
			start := i
			for i < len(line) && plain(line[i]) {
				i++
			}
			list = append(list, token{text: line[start:i]})
		default:
			return nil, fmt.Errorf("unexpected %q", line[i:])
		}
	}
	return list, nil
}

// reader takes tokens one by one. After the first error it returns empty tokens, and keeps the
// error.
type reader struct {
	tokens []token
	err    error
}

func (r *reader) fail(format string, arguments ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, arguments...)
	}
	r.tokens = nil
}

func (r *reader) at(mark string) bool {
	return len(r.tokens) > 0 && r.tokens[0].mark && r.tokens[0].text == mark
}

func (r *reader) skip(mark string) bool {
	if !r.at(mark) {
		return false
	}
	r.tokens = r.tokens[1:]
	return true
}

func (r *reader) want(mark string) {
	if !r.skip(mark) {
		r.fail("expected %q before %q", mark, r.rest())
	}
}

func (r *reader) rest() string {
	words := make([]string, 0, len(r.tokens))
	for _, t := range r.tokens {
		words = append(words, t.text)
	}
	return strings.Join(words, " ")
}

func (r *reader) word() token {
	if len(r.tokens) == 0 || r.tokens[0].mark {
		r.fail("expected a word before %q", r.rest())
		return token{}
	}
	t := r.tokens[0]
	r.tokens = r.tokens[1:]
	return t
}

func (r *reader) duration() time.Duration {
	text := r.word().text
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return time.Duration(n)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		r.fail("%q is not a time", text)
	}
	return d
}

func (r *reader) timestamp() Timestamp {
	r.want("=")
	text := r.word().text
	wallText, logicalText, _ := strings.Cut(text, ".")
	if logicalText == "" {
		logicalText = "0"
	}
	wall, err := strconv.ParseInt(wallText, 10, 64)
	logical, err2 := strconv.ParseUint(logicalText, 10, 32)
	t := Timestamp{Wall: wall, Logical: uint32(logical)}
	if err != nil || err2 != nil || t.IsZero() {
		r.fail("%q is not a timestamp", text)
	}
	return t
}

func parseTransaction(line string) (Transaction, error) {
	list, err := tokens(line)
	if err != nil {
		return Transaction{}, err
	}
	r := &reader{tokens: list}
	t := Transaction{Name: r.word().text}
	session := r.word().text
	if t.Session, err = strconv.Atoi(strings.TrimPrefix(session, "s")); err != nil {
		r.fail("%q is not a session", session)
	}
	r.want("[")
	t.Begin = r.duration()
	r.want(",")
	if !r.at("]") {
		t.End = r.duration()
	}
	r.want("]")
	switch outcome := r.word().text; outcome {
	case "commit":
		t.Outcome = Committed
	case "abort":
		t.Outcome = Aborted
	case "unknown":
	default:
		r.fail("%q is not an outcome", outcome)
	}
	for r.err == nil && !r.at(":") {
		switch mark := r.word().text; mark {
		case "ts":
			t.Commit = r.timestamp()
		case "snapshot":
			t.Snapshot = r.timestamp()
		case "final":
			t.Final = true
		default:
			r.fail("unknown mark %q", mark)
		}
	}
	r.want(":")
	for len(r.tokens) > 0 {
		t.Operations = append(t.Operations, r.operation())
		if len(r.tokens) > 0 {
			r.want(",")
		}
	}
	return t, r.err
}

func (r *reader) operation() Operation {
	verb := r.word().text
	o := Operation{Key: r.word().text}
	switch verb {
	case "append":
		o.Kind, o.Value = Append, r.word().text
	case "write":
		o.Kind, o.Value = Write, r.word().text
	case "read":
		if !r.skip("[") {
			o.Kind = Read
			if value := r.word(); value.text == "nil" && !value.quoted {
				o.Absent = true
			} else {
				o.Value = value.text
			}
			break
		}
		o.Kind = ReadList
		for r.err == nil && !r.skip("]") {
			o.List = append(o.List, r.word().text)
		}
	default:
		r.fail("%q is not an operation", verb)
	}
	return o
}

func word(text string) string {
	for i := range len(text) {
		if !plain(text[i]) {
			return strconv.Quote(text)
		}
	}
	if text == "" || text == "nil" {
		return strconv.Quote(text)
	}
	return text
}

func listText(values []string) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = word(v)
	}
	return "[" + strings.Join(words, " ") + "]"
}

// String returns the operation in the syntax of Parse.
func (o Operation) String() string {
	switch {
	case o.Kind == Append:
		return "append " + word(o.Key) + " " + word(o.Value)
	case o.Kind == ReadList:
		return "read " + word(o.Key) + " " + listText(o.List)
	case o.Kind == Write:
		return "write " + word(o.Key) + " " + word(o.Value)
	case o.Kind == Read && o.Absent:
		return "read " + word(o.Key) + " nil"
	case o.Kind == Read:
		return "read " + word(o.Key) + " " + word(o.Value)
	default:
		return fmt.Sprintf("operation kind %d", uint8(o.Kind))
	}
}

// String returns the transaction in the syntax of Parse.
func (t Transaction) String() string {
	var b strings.Builder
	name := t.Name
	if name == "" {
		name = "T"
	}
	fmt.Fprintf(&b, "%s s%d [%s,", word(name), t.Session, timeText(t.Begin))
	if t.End != 0 || t.Outcome == Committed {
		b.WriteString(timeText(t.End))
	}
	fmt.Fprintf(&b, "] %v", t.Outcome)
	if !t.Commit.IsZero() {
		fmt.Fprintf(&b, " ts=%v", t.Commit)
	}
	if !t.Snapshot.IsZero() {
		fmt.Fprintf(&b, " snapshot=%v", t.Snapshot)
	}
	if t.Final {
		b.WriteString(" final")
	}
	for i, o := range t.Operations {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(o.String())
	}
	if len(t.Operations) == 0 {
		b.WriteString(":")
	}
	return b.String()
}

func timeText(d time.Duration) string {
	if d >= time.Microsecond {
		return strings.Replace(d.String(), "µ", "u", 1)
	}
	return strconv.FormatInt(int64(d), 10)
}
