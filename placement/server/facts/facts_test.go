package facts

import (
	"math"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Whatever a node reports of the sizes of partitions, their sum over a full cluster can be counted.
func TestReportedSizesAddUp(t *testing.T) {
	p := Partition(&clusterpb.Partition{Id: 1, Keyspace: 1},
		reports.Partition{Report: &clusterpb.PartitionReport{SizeBytes: math.MaxUint64,
			LeaderLoadMicro: math.MaxUint64, FollowerLoadMicro: math.MaxUint64,
			MeasuredSeconds: math.MaxUint32}}, Around{})
	const partitions, replicas = 200_000, 6
	if p.Bytes <= 0 || p.Bytes > math.MaxInt64/(partitions*replicas) {
		t.Errorf("%d partitions of %d bytes each do not add up", partitions, p.Bytes)
	}
	if p.LeaderLoad <= 0 || p.FollowerLoad <= 0 || p.Measured <= 0 {
		t.Errorf("load %d, %d, measured for %s", p.LeaderLoad, p.FollowerLoad, p.Measured)
	}
}

// What is reported of another generation, of keys at which a partition cannot split, or cannot be
// at all, is not believed, and the rest is.
func TestReportedSplitKeys(t *testing.T) {
	prefix := keys.KeyspacePrefix(7)
	d := &clusterpb.Partition{Id: 1, Keyspace: 7, PrefixLength: keys.KeyspacePrefixLength,
		Start: append(slices.Clone(prefix), 'f'), End: append(slices.Clone(prefix), 'm')}
	d.Generation = 4
	report := func(generation uint64, load, size *clusterpb.SplitKey) *clusterpb.PartitionReport {
		r := &clusterpb.PartitionReport{Partition: 1, Generation: generation, SustainedLoadMicro: 5,
			Split: &clusterpb.SplitHints{ByLoad: load, BySize: size, HotKey: []byte("h"),
				HotThousandths: 5000, AscendingThousandths: 7}}
		seen := reports.New()
		seen.Heartbeat(1, &clusterpb.HeartbeatRequest{Node: 1, Full: true,
			Reports: []*clusterpb.PartitionReport{r}}, 10, 0)
		return seen.Of(1).Report
	}
	key := func(key string, left, right uint32) *clusterpb.SplitKey {
		return &clusterpb.SplitKey{Key: []byte(key), Left: left, Right: right}
	}
	g := plannerGrowth(d, report(4, key("g", 400, 600), key("h", 500, 500)))
	if g.Sustained != 5 || string(g.ByLoad.Key) != "g" || g.BySize.Left != 500 || g.Hot != 1000 ||
		g.Ascending != 7 {
		t.Errorf("%+v", g)
	}
	for what, r := range map[string]*clusterpb.PartitionReport{
		"an earlier generation": report(3, key("g", 400, 600), nil),
		"its start":             report(4, key("f", 400, 600), nil),
		"its end":               report(4, key("m", 400, 600), nil),
		"before it":             report(4, key("a", 400, 600), nil),
		"no key":                report(4, key("", 400, 600), nil),
		"a key that is too long": report(4,
			key("g"+string(make([]byte, keys.MaxKeySize)), 400, 600), nil),
		"too many parts":  report(4, key("g", 400, 700), nil),
		"parts that wrap": report(4, key("g", 1<<31, 1<<31), nil),
		"nothing":         nil,
	} {
		if g := plannerGrowth(d, r); g.ByLoad != nil {
			t.Errorf("%s: %+v", what, g.ByLoad)
		}
		p := Partition(d, reports.Partition{Report: r}, Around{})
		if p.Growth.ByLoad != nil || p.ID != 1 {
			t.Errorf("%s: %+v", what, p)
		}
	}
}
