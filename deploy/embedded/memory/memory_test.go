package memory

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

var both = Needs{Node: true, Core: true}

// The table of docs/limits.md: what a server that is a core member and a data node has.
func TestDivide(t *testing.T) {
	for _, c := range []struct {
		limit                                           int64
		cache, memTable, logMemTable, requests, garbage int64
	}{
		{448, 93, 11, 4, 35, 57},
		{896, 203, 23, 8, 78, 125},
		{3584, 891, 64, 16, 342, 548},
		{32 << 10, 9830, 64, 16, 1024, 10922},
	} {
		s, err := Divide(c.limit*MiB, both)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(s.Cache/MiB, s.MemTable/MiB, s.LogMemTable/MiB, s.Requests/MiB,
			s.Garbage/MiB)
		if want := fmt.Sprint(c.cache, c.memTable, c.logMemTable, c.requests, c.garbage); got != want {
			t.Errorf("%d MiB: cache, memtable, log memtable, requests, garbage are %s MiB, want %s; %+v",
				c.limit, got, want, s)
		}
	}
}

func TestDivideRefuses(t *testing.T) {
	for _, n := range []Needs{both, {Node: true}, {Core: true}, {Node: true, Core: true,
		Cache: 1 << 30}} {
		least := Least(n)
		t.Logf("%+v: %d MiB", n, least/MiB)
		if _, err := Divide(least, n); err != nil {
			t.Errorf("%+v: %v at the least limit", n, err)
		}
		var little *TooLittle
		if _, err := Divide(least-1, n); !errors.As(err, &little) || little.Least != least {
			t.Errorf("%+v: %v below the least limit", n, err)
		}
	}
	if Least(both) > 256*MiB {
		t.Errorf("a server needs %d MiB", Least(both)/MiB)
	}
}

// TestDivideKeepsTheLimit: whatever the limit and the needs, the parts are together at most the
// limit, hold what the fields say, and get no smaller with more memory.
func TestDivideKeepsTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := Needs{Node: rapid.Bool().Draw(t, "node")}
		n.Core = !n.Node || rapid.Bool().Draw(t, "core")
		size := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(MiB, 1<<33))
		n.Cache, n.MemTable = size.Draw(t, "cache"), size.Draw(t, "memtable")
		n.LogMemTable = size.Draw(t, "log memtable")
		limit := Least(n) + rapid.OneOf(rapid.Int64Range(0, 1<<30),
			rapid.Int64Range(0, 1<<44)).Draw(t, "more")
		s, err := Divide(limit, n)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, p := range s.Parts() {
			if p.Bytes <= 0 {
				t.Fatalf("%s has %d bytes", p.Name, p.Bytes)
			}
			total += p.Bytes
		}
		if total > limit {
			t.Fatalf("%d of %d bytes: %+v", total, limit, s.Parts())
		}
		fields := s.Garbage + s.Requests + s.Receiving + max(s.Cache, tablesOf(s.MemTable)) +
			tablesOf(s.LogMemTable) + s.LogCache + tablesOf(s.CoreMemTable) + s.CoreCache +
			tablesOf(s.CoreLogMemTable) + s.CoreLogCache + s.Answers + s.Forwarded + s.Gateway +
			int64(s.LargeAnswers)*s.LargestAnswer + s.RaftPending + s.RaftInbox*5/4 +
			s.CoreRaftPending + s.CoreRaftInbox*5/4 + s.PeerQueues + 2*s.Commands + 2*s.WatchQueues +
			2*s.WatchRecent + 2*s.Newest + s.Reads + s.Recent
		if n.Node && n.Core {
			fields += s.PeerQueues
		}
		if fields > limit {
			t.Fatalf("the fields are %d of %d bytes: %+v", fields, limit, s)
		}
		if n.Node && s.MemTable < MiB || n.Core && s.CoreMemTable < MiB/2 {
			t.Fatalf("a memtable is small: %+v", s)
		}
		more, err := Divide(limit+rapid.Int64Range(0, 1<<32).Draw(t, "more memory"), n)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range s.Parts() {
			if q := more.Parts()[i]; q.Name != p.Name || q.Bytes < p.Bytes {
				t.Fatalf("with more memory %s has %d instead of %d bytes", p.Name, q.Bytes, p.Bytes)
			}
		}
	})
}

func TestFind(t *testing.T) {
	const meminfo = "MemTotal:        8388608 kB\nMemFree: 1 kB\n"
	const v1 = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	const v2 = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for name, c := range map[string]struct {
		files   map[string]string
		goLimit int64
		want    int64
	}{
		"nothing":   {want: fallback},
		"a machine": {files: map[string]string{"proc/meminfo": meminfo}, want: 4 << 30},
		"version 1": {files: map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/cgroup":    "5:cpu:/x\n4:memory:/a/b\n0::/\n",
			"proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "536870912\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
		}, want: 448 * MiB},
		"version 1, the group above": {files: map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/cgroup":    "4:memory:/a/b\n",
			"proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "1073741824\n",
		}, want: 896 * MiB},
		"version 1, unlimited": {files: map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/cgroup":    "4:memory:/a\n",
			"proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
		}, want: 4 << 30},
		"version 1, a container that sees its own group as the root": {files: map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/cgroup":    "4:memory:/docker/abc\n",
			"proc/self/mountinfo": "30 25 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup x rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
		}, want: 896 * MiB},
		"version 2": {files: map[string]string{
			"proc/meminfo":                       meminfo,
			"proc/self/cgroup":                   "0::/a.slice/b\n",
			"proc/self/mountinfo":                v2,
			"sys/fs/cgroup/a.slice/b/memory.max": "max\n",
			"sys/fs/cgroup/a.slice/memory.max":   "1073741824\n",
		}, want: 896 * MiB},
		"version 2, what is slowed down first": {files: map[string]string{
			"proc/meminfo":                meminfo,
			"proc/self/cgroup":            "0::/a\n",
			"proc/self/mountinfo":         v2,
			"sys/fs/cgroup/a/memory.max":  "1073741824\n",
			"sys/fs/cgroup/a/memory.high": "536870912\n",
		}, want: 448 * MiB},
		"version 2, in a container": {files: map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/cgroup":         "0::/\n",
			"proc/self/mountinfo":      v2,
			"sys/fs/cgroup/memory.max": "536870912\n",
		}, want: 448 * MiB},
		"both versions": {files: map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "4:memory:/a\n0::/\n",
			"proc/self/mountinfo": v1 +
				"31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "536870912\n",
		}, want: 448 * MiB},
		"a mount point with a blank": {files: map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/cgroup":    "0::/a\n",
			"proc/self/mountinfo": "30 25 0:26 / /c\\040g rw - cgroup2 cgroup2 rw\n",
			"c g/a/memory.max":    "536870912\n",
		}, want: 448 * MiB},
		"more than the machine has": {files: map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/cgroup":         "0::/\n",
			"proc/self/mountinfo":      v2,
			"sys/fs/cgroup/memory.max": "17179869184\n",
		}, want: 4 << 30},
		"less than the margin": {files: map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/cgroup":         "0::/\n",
			"proc/self/mountinfo":      v2,
			"sys/fs/cgroup/memory.max": "1048576\n",
		}, want: 0},
		"GOMEMLIMIT": {files: map[string]string{"proc/meminfo": meminfo}, goLimit: 3 << 30,
			want: 3 << 30},
		"damaged": {files: map[string]string{
			"proc/meminfo":        "MemTotal: x\n",
			"proc/self/cgroup":    "0::\n:::\nx\n",
			"proc/self/mountinfo": "x - y\n - \n30 25 0:26 / /s - cgroup2 cgroup2 rw\n",
		}, want: fallback},
	} {
		root := fstest.MapFS{}
		for file, text := range c.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if c.goLimit == 0 {
			c.goLimit = math.MaxInt64
		}
		if got := find(root, c.goLimit); got.Bytes != c.want {
			t.Errorf("%s: %d (%s), want %d", name, got.Bytes, got.Source, c.want)
		}
	}
}
