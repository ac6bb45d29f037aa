package roster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// parseMembers reads "1:VOTER 2:LEARNER"; member n has the server 100+n and the address "n".
func parseMembers(line string) (*storepb.Members, error) {
	m := &storepb.Members{NextReplica: 1, Version: 1}
	for _, x := range strings.Fields(line) {
		var id uint64
		var role string
		if _, err := fmt.Sscanf(x, "%d:%s", &id, &role); err != nil {
			return nil, fmt.Errorf("%q: %w", x, err)
		}
		m.Members = append(m.Members, &storepb.Member{Replica: id, Server: 100 + id,
			Address: fmt.Sprint(id), Role: storepb.MemberRole(storepb.MemberRole_value[role])})
		m.NextReplica = id + 1
	}
	return m, nil
}

// TestFollowSteps runs scenarios. The first line is the coordination store's members, the second
// the core's, so many versions ahead. Steps are taken and shown until nothing is left to do or
// something is waited for.
func TestFollowSteps(t *testing.T) {
	datadriven.RunTest(t, "testdata/follow_step", func(t *testing.T, d *datadriven.TestData) string {
		now, after, _ := strings.Cut(d.Input, "\n")
		members, err := parseMembers(now)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		core, err := parseMembers(after)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		ahead := uint64(1)
		var silent, averse, behind, gone []uint64
		v := &FollowView{}
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "leader":
				d.ScanArgs(t, "leader", &v.Leader)
			case "ahead":
				d.ScanArgs(t, "ahead", &ahead)
			case "leaving":
				v.Leaving = true
			case "silent":
				silent = ids(t, d, arg)
			case "averse":
				averse = ids(t, d, arg)
			case "behind":
				behind = ids(t, d, arg)
			case "gone":
				gone = ids(t, d, arg)
			}
		}
		if now == after && ahead == 1 {
			ahead = 0
		}
		core.Version += ahead
		v.Members = members
		v.Answers = func(id uint64) bool { return !slices.Contains(silent, id) && !v.Gone(id) }
		v.Gone = func(id uint64) bool { return slices.Contains(gone, id) }
		v.Averse = func(id uint64) bool { return slices.Contains(averse, id) }
		v.Behind = func(id uint64) string {
			if slices.Contains(behind, id) {
				return "it is behind"
			}
			return ""
		}
		var out strings.Builder
		for range 12 {
			step := FollowStep(core, v)
			out.WriteString(step.Text)
			switch {
			case step.Waits != "":
				fmt.Fprintf(&out, "; waits: %s\n", step.Waits)
				return out.String()
			case step.Done:
				out.WriteString("\n")
				return out.String()
			case step.Transfer != 0:
				v.Leader, v.Leaving = step.Transfer, false
				out.WriteString("\n")
				continue
			}
			mustFollow(t, v.Members, step.Next)
			out.WriteString("\n")
			if v.Members = step.Next; step.Next == core {
				return out.String()
			}
		}
		d.Fatalf(t, "no end: %s", out.String())
		return ""
	})
}

// fataler is a test.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// mustFollow says that a record is one step away from another.
func mustFollow(t fataler, now, next *storepb.Members) {
	t.Helper()
	from, to := store.ConfigurationOf(now), store.ConfigurationOf(next)
	if err := from.CanBecome(&to); err != nil && !from.Equal(&to) {
		t.Fatalf("%v", err)
	}
	if next.Version <= now.Version || next.NextReplica < now.NextReplica {
		t.Fatalf("%v follows %v", next, now)
	}
	for _, m := range next.Members {
		if ByReplica(now, m.Replica) == nil && m.Replica < now.NextReplica {
			t.Fatalf("member %d was given out before: %v follows %v", m.Replica, next, now)
		}
	}
}

// TestAnyRecordIsReached has the core make changes as it does, and the coordination store look now
// and then at how far it is: each time it gets on, by steps that its group can take, to the very
// record, and has a version for each step between.
func TestAnyRecordIsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := &storepb.Members{NextReplica: 1, Version: 5}
		for range rapid.IntRange(1, 3).Draw(t, "founders") {
			core.Members = append(core.Members, &storepb.Member{Replica: core.NextReplica,
				Server: 100 + core.NextReplica, Address: "a"})
			core.NextReplica++
		}
		own := core
		g := &serverpb.CoreGoal{}
		servers := core.NextReplica
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			v := &View{Members: core, Leader: core.Members[0].Replica,
				Answers: func(uint64) bool { return true }, Behind: func(uint64) string { return "" },
				Averse: func(uint64) bool { return rapid.Bool().Draw(t, "averse") },
				MayAdd: func(*serverpb.CoreGoal) string { return "" }}
			step := NextStep(g, v)
			for step.Transfer != 0 {
				v.Leader = step.Transfer
				step = NextStep(g, v)
			}
			switch {
			case step.Next != nil && step.Waits == "":
				core = step.Next
			case rapid.Bool().Draw(t, "moves"):
				core = proto.Clone(core).(*storepb.Members)
				core.Version++
				core.Members[0].Address += "a"
			default:
				g = &serverpb.CoreGoal{}
				if rapid.Bool().Draw(t, "adds") && len(core.Members) < 7 {
					servers++
					g.AddServer, g.AddAddress = 100+servers, "new"
				}
				if rapid.Bool().Draw(t, "removes") && (len(core.Members) > 1 || g.AddServer != 0) {
					g.RemoveReplica = rapid.SampledFrom(core.Members).Draw(t, "which").Replica
				}
			}
			// A newcomer may be taken back in the middle.
			if in := ByServer(core, g.AddServer); in != nil && Voters(core) > 1 &&
				rapid.IntRange(0, 9).Draw(t, "back") == 0 {
				g = &serverpb.CoreGoal{RemoveReplica: in.Replica}
			}
			for n := rapid.IntRange(0, 3).Draw(t, "followed"); n > 0 && own.Version < core.Version; n-- {
				own = follow(t, own, core)
			}
		}
		for own.Version < core.Version {
			own = follow(t, own, core)
		}
		if own != core {
			t.Fatalf("%v is not %v", own, core)
		}
	})
}

func follow(t *rapid.T, own, core *storepb.Members) *storepb.Members {
	next := towards(own, core)
	mustFollow(t, own, next)
	if next != core && next.Version >= core.Version {
		t.Fatalf("no version is left from %v to %v", next, core)
	}
	return next
}
