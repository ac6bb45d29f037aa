package roster

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
		v := &View{Members: m, Leader: leader,
			Answers: func(id uint64) bool { return !slices.Contains(silent, id) },
			Averse:  func(id uint64) bool { return slices.Contains(averse, id) },
			Behind: func(id uint64) string {
				if slices.Contains(behind, id) {
					return "it is behind"
				}
				return ""
			},
			MayAdd: func(*serverpb.CoreGoal) string { return refused }}
		var out strings.Builder
		for range 12 {
			step := NextStep(g, v)
			out.WriteString(step.Text)
			switch {
			case step.Waits != "":
				fmt.Fprintf(&out, "; waits: %s\n", step.Waits)
				return out.String()
			case step.Done:
				out.WriteString("\n")
				return out.String()
			case step.Transfer != 0:
				v.Leader = step.Transfer
				out.WriteString("\n")
				continue
			}
			now, next := store.ConfigurationOf(v.Members), store.ConfigurationOf(step.Next)
			if err := now.CanBecome(&next); err != nil {
				d.Fatalf(t, "%v", err)
			}
			fmt.Fprintf(&out, " -> %s\n", &next)
			v.Members = step.Next
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
