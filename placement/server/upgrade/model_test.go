package upgrade

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// modelServer is one server of a model: a data node, or a member of the core.
type modelServer struct {
	member  bool
	program release.Range
	// disk is what it has noted. running: its process runs; joined: the core has admitted it since
	// it was started.
	disk            releasemark.Levels
	running, joined bool
	// stored is what the core's record of a node says, said what the leader has heard in its term,
	// and alive whether the leader hears it.
	stored, said *clusterpb.Levels
	alive        bool
}

func (s *modelServer) report() *clusterpb.Levels {
	return &clusterpb.Levels{Min: uint32(s.program.Min), Max: uint32(s.program.Max),
		Noted: uint32(s.disk.Noted), Active: uint32(s.disk.Active)}
}

// cluster is a model of a cluster under upgrades.
type cluster struct {
	record  Record
	servers []*modelServer
	now     time.Time
}

func (c *cluster) list() (list []server) {
	for i, s := range c.servers {
		levels, known := s.said, s.said != nil
		if !s.member && !known {
			levels, known = s.stored, true
		}
		u := &clusterpb.UpgradeServer{Node: uint64(i + 1), Alive: s.alive, Levels: levels}
		if s.member {
			u.Node, u.Member, u.Alive = 0, uint64(i+1), s.alive && known
		}
		list = append(list, server{known: known, UpgradeServer: u})
	}
	return list
}

// hear has the core hear a server: it registers, sends a heartbeat, or announces itself.
func (c *cluster) hear(s *modelServer) {
	if c.record.Admit("a", "v", s.report()) != nil {
		s.running, s.joined = false, false
		return
	}
	s.joined, s.alive, s.said = true, true, s.report()
	if !s.member {
		s.stored = s.report()
	}
	// It learns from the answer, and writes that down before it goes by it.
	state := c.record.State()
	s.disk.Noted = max(s.disk.Noted, release.Level(state.Coming))
	s.disk.Active = max(s.disk.Active, release.Level(state.Active))
}

func (c *cluster) check(t *rapid.T, before *serverpb.Level) {
	if c.record.Active < before.Active || c.record.coming() < release.Level(before.Coming) {
		t.Fatalf("the level falls: %v after %v", c.record, before)
	}
	if c.record.coming() > c.record.active()+1 {
		t.Fatalf("a level is left out: %v", c.record)
	}
	for i, s := range c.servers {
		if !s.joined {
			continue
		}
		if !s.program.Contains(max(s.disk.Noted, s.disk.Active)) || s.disk.Active > s.disk.Noted {
			t.Fatalf("server %d with %v has noted %v", i, s.program, s.disk)
		}
		for j, other := range c.servers {
			if other.running && other.disk.Active > s.program.Max {
				t.Fatalf("server %d uses level %v, and server %d, which takes part, supports %v", j,
					other.disk.Active, i, s.program)
			}
		}
		// The level becomes active when every server that the leader hears has noted it. One that it
		// does not hear notes the level when it is heard again.
		if c.record.Active > before.Active && s.alive && s.disk.Noted < c.record.active() {
			t.Fatalf("%v is active, and server %d has noted %v", c.record.active(), i, s.disk)
		}
	}
}

// With any programs of the servers, any server as leader, and servers that stop, fall silent and are
// heard again at any time, the level never falls, and no server that takes part is sent what its program does
// not know.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{record: record(1, 1), now: time.UnixMilli(1)}
		n := rapid.IntRange(1, 5).Draw(t, "servers")
		for i := range n {
			s := &modelServer{member: rapid.Bool().Draw(t, "member") || i == 0,
				program: release.Range{Min: 0, Max: 1}, disk: releasemark.Levels{Noted: 1, Active: 1},
				running: true}
			c.servers = append(c.servers, s)
			c.hear(s)
		}
		pick := func(t *rapid.T) *modelServer {
			return rapid.SampledFrom(c.servers).Draw(t, "server")
		}
		raised := uint32(0)
		do := func(t *rapid.T, f func()) {
			before := c.record.next()
			f()
			c.check(t, before)
			raised = max(raised, c.record.Active)
		}
		start := func(s *modelServer, max release.Level) {
			program := release.Range{Min: max - 1, Max: max}
			s.running, s.joined = releasemark.Check(program, s.disk, true) == nil, false
			if s.running {
				s.program = program
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"start with some program": func(t *rapid.T) {
				s, max := pick(t), rapid.IntRange(1, 4).Draw(t, "newest")
				do(t, func() { start(s, release.Level(max)) })
			},
			"upgrade everything": func(t *rapid.T) {
				do(t, func() {
					for _, s := range c.servers {
						if start(s, c.record.active()+1); s.running {
							c.hear(s)
						}
					}
				})
			},
			"stop": func(t *rapid.T) {
				s := pick(t)
				do(t, func() { s.running, s.joined = false, false })
			},
			"silence": func(t *rapid.T) {
				s := pick(t)
				do(t, func() { s.alive = false })
			},
			"hear": func(t *rapid.T) {
				s := pick(t)
				do(t, func() {
					if s.running {
						c.hear(s)
					}
				})
			},
			"another leader": func(t *rapid.T) {
				for _, s := range c.servers {
					s.said = nil
				}
			},
			"finalise": func(t *rapid.T) {
				do(t, func() {
					target, obstacles := c.record.assess(c.list())
					if target > c.record.coming() && obstacles == 0 {
						c.record.Level = c.record.next()
						c.record.Level.Coming = uint32(target)
					}
				})
			},
			"step": func(t *rapid.T) {
				c.now = c.now.Add(time.Minute)
				do(t, func() {
					if next, _, _ := c.record.decide(c.list(), time.Hour, c.now); next != nil {
						c.record.Level = next
					}
				})
			},
		})
	})
}
