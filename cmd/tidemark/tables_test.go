package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

// sampleTables print what clusters have that is hard on a table: long sentences, keys, addresses.
func sampleTables(at time.Time) map[string]func(*app) error {
	long := strings.Repeat("users/2026/", 8)
	return map[string]func(*app) error{
		"events": func(a *app) error {
			return a.printEvents([]admin.Event{
				{At: at, Kind: "replace replica", Partition: 1007, Keyspace: "orders", From: 2, To: 5,
					Operator: 9, Outcome: "done", Took: 1250 * time.Millisecond, Bytes: 64 << 20,
					Reason: "node 2 holds 41 replicas, and node 5 holds 12: their disks fill unevenly"},
				{At: at, Kind: "split", Partition: 17, Keyspace: "users", Child: 1009, Operator: 8,
					SplitAt: []byte(long), Outcome: "done", Took: 12 * time.Millisecond,
					Reason: "it is larger than 512.0 MiB"},
				{At: at, Kind: "node", To: 3, Outcome: "silent"},
			})
		},
		"partitions": func(a *app) error {
			return a.printPartitions(samplePartitions(long), sampleOperators(), false)
		},
		"partitions-top": func(a *app) error {
			return a.printPartitions(samplePartitions(long), nil, true)
		},
		"nodes": func(a *app) error {
			return a.printNodes([]admin.NodeInfo{
				{ID: 1, Address: "db-1.eu-central.internal:7400", Alive: true, Replicas: 120, Leaders: 41,
					DiskUsed: 700 << 30, DiskFree: 200 << 30, Region: "eu-central", Zone: "a",
					Tags: []string{"ssd"}, HTTPAddress: "db-1.eu-central.internal:7401",
					Version: "v1.2.3-45-g0123456789", Status: admin.NodeActive},
				{ID: 2, Address: "db-2.eu-central.internal:7400", Region: "eu-central", Zone: "b",
					Status: admin.NodeDecommissioning},
				{ID: 3, Address: "db-3.eu-central.internal:7400", Alive: true, Replicas: 119,
					DiskUsed: 700 << 30, DiskFree: 1 << 20, DiskFull: true, ClockUnhealthy: true,
					Region: "eu-central", Zone: "c", Silent: []uint64{2}, Status: admin.NodeActive},
			}, sampleOperators(), true)
		},
		"core": func(a *app) error {
			return a.printCore(admin.Core{Members: []admin.CoreMemberInfo{
				{ID: 1, Address: "db-1.eu-central.internal:7400", Role: "voter", Leader: true,
					Answers: true, LeadsCoordination: true},
				{ID: 2, Address: "db-2.eu-central.internal:7400", Role: "voter", Behind: 31_415},
			}})
		},
		"get": func(a *app) error {
			pairs := []kv.Pair{{Key: []byte("profile"), Value: []byte(strings.Repeat("v\t", 100)),
				Version: kv.Timestamp{Wall: at.UnixNano()}}}
			return a.printPairs("users", pairs, nil)
		},
		"scan": func(a *app) error {
			rows := output.NewRows(a.out, a.format, false).On(a.screen())
			for _, key := range []string{"a", "b\n", long} {
				if err := rows.Write([]byte(key), []byte(strings.Repeat(key, 9)), time.Time{}); err != nil {
					return err
				}
			}
			return rows.Flush()
		},
		"changes": func(a *app) error {
			lines := output.Changes{Format: a.format, Screen: a.screen()}
			b := lines.AppendHead(nil)
			for _, c := range []output.Change{
				{Timestamp: kv.Timestamp{Wall: at.UnixNano()}.String(), Kind: "put", Key: []byte("a"),
					Value: []byte(long), HasValue: true},
				{Timestamp: kv.Timestamp{Wall: at.UnixNano()}.String(), Kind: "progress"},
			} {
				b = lines.Append(b, &c)
			}
			_, err := a.out.Write(b)
			return err
		},
		"problems": func(a *app) error {
			var p health.Problems
			p.Unavailable.Add("partition 17 of users: no leader; nodes 2, 3 are down")
			p.UnderReplicated.Add("node 2 (db-2.eu-central.internal:7400) is down: 120 replicas")
			printProblems(&p, a.out, a.screen(), []string{"db-1.eu-central.internal:7400",
				"db-2.eu-central.internal:7400", "db-3.eu-central.internal:7400"}, "")
			return nil
		},
	}
}

func samplePartitions(long string) []admin.PartitionInfo {
	replicas := []admin.ReplicaInfo{{Node: 1}, {Node: 2}, {Node: 3}, {Node: 5, Learner: true}}
	busy := admin.PartitionActivity{Load: 0.25, Reads: 12_000, Writes: 340, ReadBytes: 5 << 20,
		WrittenBytes: 1 << 20}
	return []admin.PartitionInfo{
		{ID: 17, Keyspace: "users", Hash: -1, End: []byte(long), Generation: 4, Membership: 7,
			Replicas: replicas, Leader: 1, LiveKeys: 1_234_567, SizeBytes: 300 << 20, Minute: busy,
			FiveMinutes: busy},
		{ID: 1009, Keyspace: "users", Hash: -1, Start: []byte(long), Generation: 4, Membership: 1,
			Replicas: replicas[:3]},
	}
}

func sampleOperators() []admin.OperatorInfo {
	return []admin.OperatorInfo{{ID: 9, Partition: 17, Keyspace: "users", Kind: "replace replica",
		From: 2, To: 5, Step: "copy",
		Reason: "node 2 is being decommissioned, and node 5 is the emptiest"}}
}

// Tables fit terminals of 80 and 100 columns, and through a pipe they are whole. The files show
// each as people see it; "mode" is a width, a wide one with colours, a pipe, or another format.
func TestTablesAsTheyAreSeen(t *testing.T) {
	at := time.Unix(1795000000, 0)
	samples := sampleTables(at)
	shown := map[string]bool{}
	datadriven.RunTest(t, "testdata/tables", func(t *testing.T, d *datadriven.TestData) string {
		var mode string
		d.ScanArgs(t, "mode", &mode)
		print := samples[d.Cmd]
		if print == nil {
			d.Fatalf(t, "there is no sample %q", d.Cmd)
		}
		shown[d.Cmd] = true
		var out, errs strings.Builder
		a := &app{streams: streams{out: &out, err: &errs, getenv: func(string) string { return "" }},
			format: output.Table}
		switch {
		case mode == "pipe":
		case mode == "color":
			a.width, a.outTerminal = 120, true
		case mode == "headers":
			a.format, a.headers = output.TSV, true
		default:
			if _, err := fmt.Sscan(mode, &a.width); err != nil {
				a.format = output.Format(mode)
			}
		}
		if err := print(a); err != nil {
			d.Fatalf(t, "%v", err)
		}
		local := at.Local().Format(time.DateTime)
		return strings.ReplaceAll(strings.ReplaceAll(errs.String()+out.String(), local,
			"YYYY-MM-DD HH:MM:SS"), "\x1b", "^[")
	})
	for name := range samples {
		if !shown[name] {
			t.Errorf("the files do not show %s", name)
		}
	}
}
