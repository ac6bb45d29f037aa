package planner_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestScenarios runs the files of testdata/scenarios. Each opens with the sentence that it proves.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		c := &scenario{world: newWorld(t, planner.Settings{LeastBytes: 1 << 30, CountTolerance: 0.2})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c.t = t
			return c.run(d)
		})
	})
}

// scenario is one file: a world, and the operators that are proposed and not yet done.
type scenario struct {
	*world
	last []planner.Operator
}

func (c *scenario) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "settings":
		return c.settings(d)
	case "nodes":
		return c.lines(d, c.node)
	case "keyspaces":
		return c.lines(d, c.keyspace)
	case "partitions":
		return c.lines(d, c.partition)
	case "step":
		return c.step(d)
	case "calm":
		return c.calm(d)
	case "done":
		for _, op := range c.last {
			c.finish(op)
		}
		c.last, c.inFlight = nil, nil
		return "ok\n"
	case "fail":
		c.last, c.inFlight = nil, nil
		return "ok\n"
	case "can-remove":
		var ids []keys.NodeID
		for _, arg := range d.CmdArgs {
			ids = append(ids, keys.NodeID(number(arg.Key)))
		}
		obstacles := c.explainer.CanRemove(ids...)
		if len(obstacles) == 0 {
			return "nothing in the way\n"
		}
		var b strings.Builder
		for _, o := range obstacles {
			fmt.Fprintln(&b, o)
		}
		return b.String()
	case "why-partition", "why-node", "why-keyspace":
		return c.why(d)
	case "parse":
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			rules, err := rules.Parse(strings.TrimSuffix(line, "\n"))
			if err != nil {
				fmt.Fprintln(&b, "error:", err)
			} else {
				fmt.Fprintf(&b, "%d rules: %s\n", len(rules), rules)
			}
		}
		return b.String()
	}
	return "no such command: " + d.Cmd + "\n"
}

func (c *scenario) settings(d *datadriven.TestData) string {
	s := *c.state.Settings()
	for _, arg := range d.CmdArgs {
		v := arg.Vals[0]
		switch arg.Key {
		case "paused":
			s.Paused = v == "true"
		case "node-in-flight":
			s.NodeInFlight = int(number(v))
		case "zone-in-flight":
			s.ZoneInFlight = int(number(v))
		case "least-bytes":
			s.LeastBytes = number(v)
		case "merges":
			s.Merges = v == "true"
		case "node-splits":
			s.NodeSplits = int(number(v))
		case "all-splits":
			s.AllSplits = int(number(v))
		case "merge-pause":
			var err error
			s.MergePause, err = time.ParseDuration(v)
			c.must(err)
		case "least-count":
			s.LeastCount = float64(number(v))
		default:
			c.t.Fatalf("no such setting: %s", arg.Key)
		}
	}
	c.must(c.state.SetSettings(s))
	return "ok\n"
}

// lines calls f with the fields of each line: what is before the first with "=", and the rest.
func (c *scenario) lines(d *datadriven.TestData, f func(string, map[string]string) error) string {
	var b strings.Builder
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		with := map[string]string{}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			with[key] = value
		}
		for _, id := range expand(fields[0]) {
			if err := f(id, with); err != nil {
				fmt.Fprintln(&b, "error:", err)
			}
		}
	}
	if b.Len() == 0 {
		return "ok\n"
	}
	return b.String()
}

// expand reads "3" and "3-7".
func expand(text string) []string {
	from, to, many := strings.Cut(text, "-")
	if !many {
		return []string{text}
	}
	var out []string
	for i := number(from); i <= number(to); i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func (c *scenario) node(id string, with map[string]string) error {
	n, ok := c.nodes[keys.NodeID(number(id))]
	if !ok {
		n = planner.Node{ID: keys.NodeID(number(id)), Alive: true, Since: c.now.Add(-time.Hour),
			DiskCapacity: 1 << 40, Processors: 4 * planner.Core}
	}
	for key, v := range with {
		switch key {
		case "region":
			n.Region = v
		case "zone":
			n.Zone = v
		case "tags":
			n.Tags = strings.Split(v, "+")
		case "status":
			n.Status = map[string]planner.Status{"active": planner.Active,
				"draining": planner.Draining, "moving": planner.Moving, "gone": planner.Gone}[v]
		case "silent", "alive":
			ago, err := time.ParseDuration(v)
			c.must(err)
			n.Alive, n.Since = key == "alive", c.now.Add(-ago)
		case "displaced":
			n.Displaced = v == "true"
		case "disk-slow":
			n.DiskSlow = v == "true"
		case "clock-wrong":
			n.ClockWrong = v == "true"
		case "disk":
			n.DiskCapacity = number(v)
		case "used":
			n.DiskUsed = number(v)
		case "processors":
			n.Processors = cores(v)
		default:
			c.t.Fatalf("no such property of a node: %s", key)
		}
	}
	return c.setNode(n)
}

func (c *scenario) keyspace(id string, with map[string]string) error {
	k := planner.Keyspace{ID: keys.KeyspaceID(number(id)), Name: with["name"], Replicas: 3}
	if v := with["replicas"]; v != "" {
		k.Replicas = int(number(v))
	}
	var err error
	// What follows the first "=" is the value, so that rules need no quotes.
	if k.Rules, err = rules.Parse(with["place"]); err != nil {
		return err
	}
	k.NoAuto = with["auto"] == "no"
	if v := with["split"]; v != "" {
		k.SplitSize = number(v)
	}
	if v := with["merge"]; v != "" {
		k.MergeSize = number(v)
	}
	if v := with["leaders"]; v != "" {
		if k.Leaders, err = rules.ParseSelectors(v); err != nil {
			return err
		}
	}
	return c.setKeyspace(k)
}

func (c *scenario) partition(id string, with map[string]string) error {
	p, ok := c.partitions[keys.PartitionID(number(id))]
	if !ok {
		p = planner.Partition{ID: keys.PartitionID(number(id)), Keyspace: 1, Epoch: planner.Epoch{1, 1},
			Bytes: 100 << 20, Measured: time.Hour}
	}
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(with))) { // "on" before "leader"
		v := with[key]
		switch key {
		case "keyspace":
			p.Keyspace = keys.KeyspaceID(number(v))
		case "on":
			p.Replicas = nil
			for one := range strings.SplitSeq(v, ",") {
				p.Replicas = append(p.Replicas, replicaOf(one))
			}
			if !ok {
				p.Leader, p.Wanted = p.Replicas[0].Node, p.Replicas[0].Node
			}
		case "leader":
			p.Leader = keys.NodeID(number(v))
		case "wanted":
			p.Wanted = keys.NodeID(number(v))
		case "bytes":
			p.Bytes = number(v)
		case "load":
			p.LeaderLoad = cores(v)
		case "follower":
			p.FollowerLoad = cores(v)
		case "ended":
			ago, err := time.ParseDuration(v)
			c.must(err)
			p.Ended = c.now.Add(-ago)
		case "left":
			p.Left = keys.PartitionID(number(v))
		case "right":
			p.Right = keys.PartitionID(number(v))
		case "from":
			p.SplitFrom = keys.PartitionID(number(v))
		case "asked":
			p.Asked = v == "true"
		case "resized":
			ago, err := time.ParseDuration(v)
			c.must(err)
			p.Resized = c.now.Add(-ago)
		case "sustained":
			p.Growth.Sustained = cores(v)
		case "peak":
			p.Growth.Peak = cores(v)
		case "by-load":
			p.Growth.ByLoad = pointOf(v)
		case "by-size":
			p.Growth.BySize = pointOf(v)
		case "one-key":
			p.Growth.OneKey = v == "true"
		case "hot":
			key, part, _ := strings.Cut(v, ":")
			p.Growth.HotKey, p.Growth.Hot = planner.Key(key), int(number(part))
		case "ascending":
			p.Growth.Ascending = int(number(v))
		case "measured":
			var err error
			p.Measured, err = time.ParseDuration(v)
			c.must(err)
		default:
			c.t.Fatalf("no such property of a partition: %s", key)
		}
	}
	return c.setPartition(p)
}

// replicaOf reads a node, followed by what the replica there is: "4", "4l" for a learner, "4i" and
// "4o" for incoming and outgoing voters, "4b" and "4w" for broken and wiped.
func replicaOf(text string) planner.Replica {
	r := planner.Replica{}
	id := strings.TrimRight(text, "liobw")
	for _, c := range text[len(id):] {
		switch c {
		case 'l':
			r.Role = planner.Learner
		case 'i':
			r.Role = planner.Incoming
		case 'o':
			r.Role = planner.Outgoing
		case 'b':
			r.Damage = planner.Broken
		case 'w':
			r.Damage = planner.Wiped
		}
	}
	r.Node = keys.NodeID(number(id))
	return r
}

// pointOf reads a key and thousandths left, right and across: "m:480,500,20"; "none" is none.
func pointOf(text string) *planner.SplitPoint {
	if text == "none" {
		return nil
	}
	key, parts, _ := strings.Cut(text, ":")
	p := &planner.SplitPoint{Key: planner.Key(key)}
	for i, part := range strings.Split(parts, ",") {
		*[]*int{&p.Left, &p.Right, &p.Across}[i] = int(number(part))
	}
	return p
}

func (c *scenario) step(d *datadriven.TestData) string {
	after := time.Duration(0)
	for _, arg := range d.CmdArgs {
		if arg.Key == "after" {
			var err error
			after, err = time.ParseDuration(arg.Vals[0])
			c.must(err)
		}
	}
	c.now = c.now.Add(after)
	proposal := c.world.step()
	c.last = append(c.last, proposal.Operators...)
	var b strings.Builder
	for _, op := range proposal.Operators {
		if d.HasArg("short") {
			fmt.Fprintln(&b, op.String())
		} else {
			b.WriteString(op.Detail())
		}
	}
	if len(proposal.Operators) == 0 {
		b.WriteString("nothing to do\n")
	}
	if proposal.Waiting > 0 {
		fmt.Fprintf(&b, "%d wait\n", proposal.Waiting)
	}
	if proposal.Blocked > 0 {
		fmt.Fprintf(&b, "%d blocked: %v\n", proposal.Blocked, proposal.FirstBlocked)
	}
	return b.String()
}

// calm steps and carries out until nothing is left to do.
func (c *scenario) calm(d *datadriven.TestData) string {
	moves, transfers := 0, 0
	for i := range 1000 {
		c.now = c.now.Add(11 * time.Minute)
		proposal := c.world.step()
		if len(proposal.Operators) == 0 {
			return fmt.Sprintf("after %d steps, %d changes of replicas, %d transfers\n%s", i, moves,
				transfers, c.table())
		}
		for _, op := range proposal.Operators {
			if op.Kind == planner.Transfer {
				transfers++
			} else {
				moves++
			}
			c.finish(op)
		}
		c.inFlight = nil
	}
	return "never calm\n" + c.table()
}

func (c *scenario) why(d *datadriven.TestData) string {
	id := number(d.CmdArgs[0].Key)
	var answer fmt.Stringer
	var err error
	switch d.Cmd {
	case "why-partition":
		answer, err = c.explainer.Partition(keys.PartitionID(id))
	case "why-node":
		answer, err = c.explainer.Node(keys.NodeID(id))
	default:
		answer, err = c.explainer.Keyspace(keys.KeyspaceID(id))
	}
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	encoded, err := json.Marshal(answer)
	c.must(err)
	if d.HasArg("json") {
		return string(encoded) + "\n"
	}
	return answer.String()
}

func number(text string) int64 {
	scale := int64(1)
	if i := strings.IndexAny(text, "KMGT"); i > 0 {
		scale = map[byte]int64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}[text[i]]
		text = text[:i]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n * scale
}

func cores(text string) planner.Cores {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return planner.Cores(f * float64(planner.Core))
}
