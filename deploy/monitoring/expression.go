package monitoring

import (
	"fmt"
	"slices"
	"strings"
)

// use is one place in an expression where a metric is named.
type use struct {
	metric string
	// end is where the name ends in the expression. braces says that label matchers follow there.
	end    int
	braces bool
	// labels are those of its matchers.
	labels []string
}

// parsed is what an expression of Prometheus names.
type parsed struct {
	uses []use
	// labels are those that results are grouped or matched by.
	labels []string
}

var (
	operators = []string{"and", "or", "unless", "bool", "offset", "inf", "nan"}
	groupings = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
)

// parse finds the metrics and labels that an expression names. It is no check of the grammar:
// promtool does that.
func parse(expr string) (p parsed, err error) {
	s := scanner{text: expr}
	for s.skipSpace(); s.at < len(s.text); s.skipSpace() {
		switch c := s.text[s.at]; {
		case c == '"' || c == '\'':
			err = s.skipString()
		case c == '[':
			err = s.skipPast("]")
		case c == '{':
			err = s.matchers(&p)
		case c >= '0' && c <= '9':
			for s.at++; s.at < len(s.text) && (inWord(s.text[s.at]) || s.text[s.at] == '.'); s.at++ {
			}
		case inWord(c):
			err = s.named(&p)
		default:
			s.at++
		}
		if err != nil {
			return parsed{}, fmt.Errorf("the expression %q: %w", expr, err)
		}
	}
	return p, nil
}

// scanner walks through an expression.
type scanner struct {
	text string
	at   int
}

func inWord(c byte) bool {
	return c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c >= '0' && c <= '9'
}

func (s *scanner) skipSpace() {
	for s.at < len(s.text) && strings.IndexByte(" \t\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

func (s *scanner) skipPast(end string) error {
	i := strings.Index(s.text[s.at:], end)
	if i < 0 {
		return fmt.Errorf("there is no %s after position %d", end, s.at)
	}
	s.at += i + len(end)
	return nil
}

func (s *scanner) skipString() error {
	quote := s.text[s.at]
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case quote:
			s.at++
			return nil
		}
	}
	return fmt.Errorf("a string does not end")
}

func (s *scanner) word() string {
	begin := s.at
	for s.at < len(s.text) && inWord(s.text[s.at]) {
		s.at++
	}
	return s.text[begin:s.at]
}

// next is the byte after white space; 0 at the end.
func (s *scanner) next() byte {
	s.skipSpace()
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// named takes in a word: an operator, a grouping with its labels, a function, or a metric.
func (s *scanner) named(p *parsed) error {
	word := s.word()
	end := s.at
	switch {
	case slices.Contains(operators, word):
		return nil
	case slices.Contains(groupings, word):
		if s.next() != '(' {
			return nil
		}
		begin := s.at + 1
		if err := s.skipPast(")"); err != nil {
			return err
		}
		for label := range strings.SplitSeq(s.text[begin:s.at-1], ",") {
			if label = strings.TrimSpace(label); label != "" {
				p.labels = append(p.labels, label)
			}
		}
		return nil
	case s.next() == '(':
		return nil // a function, or an aggregation
	}
	ahead := scanner{s.text, s.at}
	if w := ahead.word(); w == "by" || w == "without" {
		return nil // an aggregation
	}
	p.uses = append(p.uses, use{metric: word, end: end, braces: end < len(s.text) &&
		s.text[end] == '{'})
	return nil
}

// matchers takes in {label="value", ...}, which follows the name of a metric.
func (s *scanner) matchers(p *parsed) error {
	if len(p.uses) == 0 || p.uses[len(p.uses)-1].end != s.at {
		return fmt.Errorf("the matchers at position %d do not follow the name of a metric", s.at)
	}
	of := &p.uses[len(p.uses)-1]
	s.at++
	for {
		switch c := s.next(); {
		case c == '}':
			s.at++
			return nil
		case c == '"':
			if err := s.skipString(); err != nil {
				return err
			}
		case inWord(c):
			of.labels = append(of.labels, s.word())
		case c == 0:
			return fmt.Errorf("there is no } after the matchers of %s", of.metric)
		default:
			s.at++
		}
	}
}

// selected is the expression with a matcher added to each metric.
func selected(expr, matcher string) string {
	p, err := parse(expr)
	if err != nil {
		panic(err) // all expressions are in this package, and tests make all dashboards
	}
	for _, u := range slices.Backward(p.uses) {
		if u.braces {
			expr = expr[:u.end+1] + matcher + "," + expr[u.end+1:]
		} else {
			expr = expr[:u.end] + "{" + matcher + "}" + expr[u.end:]
		}
	}
	return expr
}
