package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// TestCoreSteps runs scenarios. A core is given by its members' roles; member n has the server
// 100+n and the address "n". A step is taken and shown, until nothing is left to do or something is
// waited for.
func TestCoreSteps(t *testing.T) {
	datadriven.RunTest(t, "testdata/core_step", func(t *testing.T, d *datadriven.TestData) string {
		m := &storepb.Members{NextReplica: 1}
		for _, line := range strings.Fields(d.Input) {
			var id uint64
			var role string
			if _, err := fmt.Sscanf(line, "%d:%s", &id, &role); err != nil {
				d.Fatalf(t, "%q: %v", line, err)
			}
			m.Members = append(m.Members, &storepb.Member{Replica: id, Server: 100 + id,
				Address: fmt.Sprint(id), Role: storepb.MemberRole(storepb.MemberRole_value[role])})
			m.NextReplica = id + 1
		}
		var leader uint64
		var silent, averse, behind []uint64
		var refused string
		g := &serverpb.CoreGoal{}
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "leader":
				d.ScanArgs(t, "leader", &leader)
			case "silent":
				silent = ids(t, d, arg)
			case "averse":
				averse = ids(t, d, arg)
			case "behind":
				behind = ids(t, d, arg)
			case "add":
				var id uint64
				d.ScanArgs(t, "add", &id)
				g.AddServer, g.AddAddress = 100+id, fmt.Sprint(id)
			case "refused":
				refused = "it may not know what is in the log"
			case "remove":
				d.ScanArgs(t, "remove", &g.RemoveReplica)
			}
		}
		v := &coreView{members: m, leader: leader,
			answers: func(id uint64) bool { return !slices.Contains(silent, id) },
			averse:  func(id uint64) bool { return slices.Contains(averse, id) },
			behind: func(id uint64) string {
				if slices.Contains(behind, id) {
					return "it is behind"
				}
				return ""
			},
			mayAdd: func(*serverpb.CoreGoal) string { return refused }}
		var out strings.Builder
		for range 12 {
			step := coreStepOf(g, v)
			out.WriteString(step.text)
			switch {
			case step.waits != "":
				fmt.Fprintf(&out, "; waits: %s\n", step.waits)
				return out.String()
			case step.done:
				out.WriteString("\n")
				return out.String()
			case step.transfer != 0:
				v.leader = step.transfer
				out.WriteString("\n")
				continue
			}
			now, next := store.ConfigurationOf(v.members), store.ConfigurationOf(step.next)
			if err := now.CanBecome(&next); err != nil {
				d.Fatalf(t, "%v", err)
			}
			fmt.Fprintf(&out, " -> %s\n", &next)
			v.members = step.next
		}
		d.Fatalf(t, "no end: %s", out.String())
		return ""
	})
}

func ids(t *testing.T, d *datadriven.TestData, arg datadriven.CmdArg) (list []uint64) {
	for _, v := range arg.Vals {
		var id uint64
		if _, err := fmt.Sscan(v, &id); err != nil {
			d.Fatalf(t, "%v", err)
		}
		list = append(list, id)
	}
	return list
}
