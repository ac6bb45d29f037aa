package kvtest_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// client is the client of an option client=name; without one, the first. They are opened when they
// are first used.
func (l *line) client() *guest { return l.s.client(l.options["client"]) }

func (s *scene) client(name string) *guest {
	if s.clients[name] == nil {
		s.clients[name] = &guest{s.c.Client(s.t), fmt.Sprintf("client-%d", len(s.clients)+1)}
	}
	return s.clients[name]
}

func (l *line) keyspace() *kv.Keyspace { return l.client().Keyspace(l.word(0)) }

// context is limited by an option within=duration.
func (l *line) context() (context.Context, context.CancelFunc) {
	if limit := l.duration("within", 0); limit > 0 {
		return context.WithTimeout(l.s.t.Context(), limit)
	}
	return context.WithCancel(l.s.t.Context())
}

// server is a server by its number or by the name that the script gave it.
func (l *line) server(name string) int {
	if n, named := l.s.servers[name]; named {
		return n
	}
	n, err := strconv.Atoi(name)
	if err != nil || n >= l.s.c.Servers() {
		l.s.t.Fatalf("%q: there is no server %q", l.text, name)
	}
	return n
}

// list are the servers of words: numbers, names, all, nodes, core.
func (l *line) list(words []string) (servers []int) {
	for _, w := range words {
		switch w {
		case "all", "nodes", "core":
			for i := range l.s.c.Servers() {
				node := l.s.c.Config(i).Roles[len(l.s.c.Config(i).Roles)-1] == "node"
				if w == "all" || node == (w == "nodes") {
					servers = append(servers, i)
				}
			}
		default:
			servers = append(servers, l.server(w))
		}
	}
	return servers
}

// hosts are the hosts of words: servers, clients, or all servers other than those in but.
func (l *line) hosts(words []string, but ...string) (hosts []string) {
	for _, w := range words {
		switch guest := l.s.clients[w]; {
		case guest != nil:
			hosts = append(hosts, guest.host)
		case w == "others":
			for i := range l.s.c.Servers() {
				excluded := false
				for _, name := range but {
					excluded = excluded || l.s.clients[name] == nil && l.server(name) == i
				}
				if !excluded {
					hosts = append(hosts, l.s.c.Host(i))
				}
			}
		default:
			hosts = append(hosts, l.s.c.Host(l.server(w)))
		}
	}
	return hosts
}

// mode is how a link is cut: stall, unless the word break is there.
func (l *line) mode() memnet.Mode {
	stall := l.flag("stall")
	if l.flag("break") && !stall {
		return memnet.Break
	}
	return memnet.Stall
}

// coreLeader waits for the server that leads the core.
func (s *scene) coreLeader() (server int) {
	eventually(s.t, "a leader of the core", func() bool {
		for i := range s.c.Servers() {
			if p := s.c.Process(i); p != nil && p.LeadsCore() {
				server = i
				return true
			}
		}
		return false
	})
	return server
}

// leads says whether a server leads any partition.
func (s *scene) leads(server int) bool {
	for _, r := range s.c.Process(server).Replicas() {
		if r.Leads {
			return true
		}
	}
	return false
}

// because says whether a server is ready; otherwise why, as far as the script says what to expect.
// In a script "_" stands for a blank.
func (s *scene) because(server int, expected string) string {
	ready, why := s.c.Process(server).Ready()
	expected = strings.ReplaceAll(expected, "_", " ")
	switch {
	case ready:
		return "is ready"
	case strings.Contains(why, expected):
		return strings.TrimSpace("is not ready: " + expected)
	}
	return "is not ready: " + why
}

// repeat runs f until a time is over.
func repeat(d, every time.Duration, f func()) {
	for began := time.Now(); time.Since(began) < d; time.Sleep(every) {
		f()
	}
}
