package kvtest_test

import (
	"strings"

	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// links does something to all links between those before the word "to" and those behind it.
func (s *scene) links(l *line, do func(a, b string, mode memnet.Mode)) {
	mode := l.mode()
	from, to := l.words, []string{"others"}
	for i, w := range l.words {
		if w == "to" {
			from, to = l.words[:i], l.words[i+1:]
		}
	}
	// "others" are those which are neither before the word nor, of a client, behind it.
	but := append(from[:len(from):len(from)], but(to)...)
	for _, a := range l.hosts(from) {
		for _, b := range l.hosts(withoutBut(to), but...) {
			if a != b {
				do(a, b, mode)
			}
		}
	}
}

// but are the names behind the word "but".
func but(words []string) []string {
	for i, w := range words {
		if w == "but" {
			return words[i+1:]
		}
	}
	return nil
}

func withoutBut(words []string) []string {
	return words[:len(words)-len(but(words))-min(1, len(but(words)))]
}

// slow delays each way of links.
func (s *scene) slow(l *line) {
	way, oneWay := l.duration("by", 0), l.flag("one-way")
	s.links(l, func(a, b string, _ memnet.Mode) {
		s.c.Network().SetLatency(a, b, way)
		if !oneWay {
			s.c.Network().SetLatency(b, a, way)
		}
	})
}

func (s *scene) messages(l *line) {
	if len(l.options) == 0 {
		s.c.Messages().Heal()
		return
	}
	for from := range s.c.Servers() {
		for to := range s.c.Servers() {
			s.c.Messages().Set(from, to, kvtest.MessageFaults{
				Lose: l.number("lose", 0), Late: l.number("late", 0), Repeat: l.number("repeat", 0),
				MaxDelay: l.duration("most", 0),
			})
		}
	}
}

func (s *scene) await(l *line) {
	what := l.word(0)
	servers := l.list(l.words[1:])
	switch what {
	case "equal":
		equal(s.t, s.c)
		return
	case "ready":
		if len(servers) == 0 {
			ready(s.t, s.c)
			return
		}
	}
	for _, i := range servers {
		eventually(s.t, l.text, func() bool {
			switch what {
			case "ready":
				ok, _ := s.c.Process(i).Ready()
				return ok
			case "unready":
				ok, why := s.c.Process(i).Ready()
				return !ok && strings.Contains(why, strings.ReplaceAll(l.options["because"], "_",
					" "))
			case "failed":
				return s.c.Process(i).Err() != nil
			case "joined":
				return s.c.Process(i).NodeID() != 0
			case "leading":
				return s.leads(i)
			case "not-leading":
				return !s.leads(i)
			}
			s.t.Fatalf("%q: there is nothing to wait for", l.text)
			return false
		})
	}
}
