package steps

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestMergeSteps plays the files in testdata/merge. Commands:
//
//	partition left|right nodes=(1,2,3)   it has voters on these nodes, the first one leads
//	merge [moves=left|right]             the left one is to consume the right one
//	lead left|right node=2               it leads now, by an election
//	down nodes=(2,3)                     they do not answer; without nodes: all do
//	slow nodes=(2,3)                     their disks are slow
//	freeze                               the right one is frozen for the present epoch
//	abort                                the left one takes the attempt back
//	thaw                                 the right one thaws
//	cancel                               the operator is taken back
//	step [n=1] [lost]                    the next step is carried out unless it is lost, and printed
//	                                     with what comes of it
func TestMergeSteps(t *testing.T) {
	datadriven.Walk(t, "testdata/merge", func(t *testing.T, path string) {
		m := &mergeScenario{sides: map[string]*clusterpb.Partition{}, leader: map[uint64]uint64{}}
		datadriven.RunTest(t, path, func(t *testing.T, c *datadriven.TestData) string {
			return m.run(t, c)
		})
	})
}

type mergeScenario struct {
	sides  map[string]*clusterpb.Partition
	leader map[uint64]uint64
	o      *serverpb.Operator
	// down are the nodes that do not answer, slow those whose disks are slow.
	down, slow []uint64
}

func (m *mergeScenario) run(t *testing.T, c *datadriven.TestData) string {
	left, right := m.sides["left"], m.sides["right"]
	switch c.Cmd {
	case "partition":
		d := wholePartition()
		boundary := keys.InternalKey(d, []byte("m"))
		if c.CmdArgs[0].Key == "left" {
			d.End = boundary
		} else {
			d.Id, d.Start, d.Generation = 101, boundary, 3
		}
		i := slices.IndexFunc(c.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == "nodes" })
		for j := range c.CmdArgs[i].Vals {
			var node uint64
			c.CmdArgs[i].Scan(t, j, &node)
			d.Replicas = append(d.Replicas, &clusterpb.Replica{Node: node, Replica: uint64(j + 1)})
		}
		m.sides[c.CmdArgs[0].Key], m.leader[d.Id] = d, d.Replicas[0].Node
		return replicasLine(d, m.leader[d.Id]) + "\n"
	case "merge":
		m.o = NewMerge(left, right)
		m.o.Id = 1
		if c.HasArg("moves") {
			var moves string
			c.ScanArgs(t, "moves", &moves)
			m.o.Moves = m.sides[moves].Id
			if moves == "left" {
				m.o.Membership = right.Membership
			}
		}
	case "lead":
		var node uint64
		c.ScanArgs(t, "node", &node)
		m.leader[m.sides[c.CmdArgs[0].Key].Id] = node
	case "down":
		m.down = nodesArg(t, c)
	case "slow":
		m.slow = nodesArg(t, c)
	case "freeze":
		m.change("right", func(d *clusterpb.Partition) {
			d.Frozen = &clusterpb.Freeze{Partition: left.Id, Generation: left.Generation,
				Membership: left.Membership}
		})
	case "abort":
		m.change("left", func(*clusterpb.Partition) {})
	case "thaw":
		m.change("right", func(d *clusterpb.Partition) { d.Frozen = nil })
	case "cancel":
		m.o.Cancelled, m.o.CancelledAt, m.o.RightCancelledAt = true, left.Membership, right.Membership
	case "step":
		n := 1
		c.MaybeScanArgs(t, "n", &n)
		var out strings.Builder
		for range n {
			if !m.step(&out, c.HasArg("lost")) {
				break
			}
		}
		return out.String()
	default:
		c.Fatalf(t, "there is no such command")
	}
	return ""
}

// change raises the membership of one of the two.
func (m *mergeScenario) change(side string, how func(*clusterpb.Partition)) {
	d := proto.Clone(m.sides[side]).(*clusterpb.Partition)
	d.Membership++
	how(d)
	m.sides[side] = d
}

func (m *mergeScenario) step(out *strings.Builder, lost bool) bool {
	left, right := m.sides["left"], m.sides["right"]
	at := Sides{Left: left, Right: right, LeftLeader: keys.NodeID(m.leader[left.Id])}
	if right != nil {
		at.RightLeader = keys.NodeID(m.leader[right.Id])
	}
	next := Merge(m.o, at, ranksOf(m.down, m.slow))
	fmt.Fprintln(out, next.Text)
	if next.Done {
		fmt.Fprintln(out, "  it ends")
	}
	o := next.Order
	if o == nil || lost {
		return false
	}
	side := "left"
	if o.Target.Id != left.Id {
		side = "right"
	}
	switch {
	case o.TransferTo != 0:
		m.leader[o.Target.Id] = ReplicaOf(o.Target, o.TransferTo).Node
	case o.Consume != nil:
		fmt.Fprintf(out, "  consumes p%d at %d.%d, frozen: %v\n", o.Consume.Id, o.Consume.Generation,
			o.Consume.Membership, o.Consume.Frozen != nil)
		m.sides["right"], m.sides["left"] = nil, o.Target
		fmt.Fprintf(out, "  %s\n", spanLine(o.Target))
		return true
	default:
		m.sides[side] = o.Target
	}
	d := m.sides[side]
	fmt.Fprintf(out, "  %s at %d.%d: %s\n", side, d.Generation, d.Membership,
		replicasLine(d, m.leader[d.Id]))
	return true
}

// A merge that was reported has not ended before the table has it: until then its operator is the
// evidence, and keeps others away from what was consumed.
func TestMergeEndsWithTheTable(t *testing.T) {
	left := &clusterpb.Partition{Id: 100, Keyspace: 7, Start: []byte("a"), End: []byte("z"),
		Generation: 3, Membership: 1}
	right := &clusterpb.Partition{Id: 101, Keyspace: 7, Start: []byte("m"), End: []byte("z"),
		Generation: 2, Membership: 1}
	o := &serverpb.Operator{Id: 1, Partition: 100, Right: 101, Generation: 2, RightGeneration: 2}
	for _, c := range []struct {
		right *clusterpb.Partition
		done  bool
	}{{right, false}, {nil, true}} {
		next := Merge(o, Sides{Left: left, Right: c.right, LeftLeader: 1}, ranksOf(nil, nil))
		if next.Done != c.done || next.Order != nil {
			t.Errorf("with the right one %v in the table: %+v", c.right != nil, next)
		}
	}
}
