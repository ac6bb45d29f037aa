package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// LoadHistories makes the fake cluster answer with its histories, from where it is asked.
func (f *fake) LoadHistories(_ context.Context, nodes []admin.NodeInfo,
	since func(uint64) admin.LoadHistorySince) (all []admin.LoadHistory) {
	for _, n := range nodes {
		q := since(n.ID)
		h := admin.LoadHistory{Node: n.ID}
		for _, p := range f.points {
			if !p.Begin.Before(q.Points) {
				h.Points = append(h.Points, p)
			}
		}
		all = append(all, h)
	}
	return all
}

var noon = time.UnixMilli(1_700_000_000_000).Truncate(time.Minute)

func point(step int, measured time.Duration, reads uint64) admin.LoadPoint {
	return admin.LoadPoint{Begin: noon.Add(time.Duration(step) * pointStep), Measured: measured,
		Reads: reads, ReadTimes: []uint32{0, 90, 0, 0, 10}}
}

// The load of nodes is added up, each by the time for which it was measured. A step that a node has
// not measured yet is not shown, and a node that does not answer is named.
func TestHistoriesAreAddedUp(t *testing.T) {
	var p past
	p.merge([]admin.LoadHistory{
		{Node: 1, Points: []admin.LoadPoint{point(0, 10*time.Second, 100), point(1, 9*time.Second, 90),
			point(2, 3*time.Second, 30)}},
		{Node: 2, Points: []admin.LoadPoint{point(0, 10*time.Second, 50), point(1, 12*time.Second, 60)}},
		{Node: 3, Err: errors.New("down")}})
	got := p.sum()
	if fmt.Sprint(got.Reads) != "[15 15]" || fmt.Sprint(got.Silent) != "[3]" ||
		got.Begin != noon.UnixMilli() {
		t.Errorf("the sums are %v from %d, silent %v", got.Reads, got.Begin, got.Silent)
	}
	if got.ReadP50[0] < 50 || got.ReadP50[0] > 100 || got.ReadP99[0] < 400 || got.ReadP99[0] > 800 {
		t.Errorf("the median is %d us, p99 %d us", got.ReadP50[0], got.ReadP99[0])
	}
	// Asked again, nodes answer from their newest step on.
	if q := p.since(1); !q.Points.Equal(noon.Add(2 * pointStep)) {
		t.Errorf("node 1 is asked since %v", q.Points)
	}
	p.merge([]admin.LoadHistory{{Node: 1, Points: []admin.LoadPoint{point(2, 10*time.Second, 100)}},
		{Node: 2, Points: []admin.LoadPoint{point(2, 10*time.Second, 50)}}})
	if got := p.sum(); fmt.Sprint(got.Reads) != "[15 15 15]" {
		t.Errorf("after a second answer the sums are %v", got.Reads)
	}
	// A long time later only the last hour is there.
	p.merge([]admin.LoadHistory{{Node: 1, Points: []admin.LoadPoint{point(1000, time.Second, 1)}}})
	if got := p.sum(); len(got.Reads) > int(pastKept/pointStep)+1 {
		t.Errorf("%d steps are shown", len(got.Reads))
	}
	p.forget()
	if got := p.sum(); len(got.Reads) != 0 {
		t.Errorf("after all was forgotten there are %v", got.Reads)
	}
}

// The heat map of 10,000 partitions has few rows, whose sums are those of the partitions, and can be
// zoomed to one partition.
func TestHeatOfManyPartitions(t *testing.T) {
	const partitions, busy = 10_000, 7777
	all := make([]admin.PartitionInfo, partitions)
	slot := admin.LoadSlot{Begin: noon, Measured: 30 * time.Second}
	for i := range all {
		all[i] = admin.PartitionInfo{ID: uint64(i + 1), Keyspace: "a", Hash: i}
		if i >= partitions/2 {
			all[i].Keyspace = "b"
		}
		writes := uint64(30)
		if i == busy {
			writes = 30_000
		}
		slot.Partitions = append(slot.Partitions, all[i].ID)
		slot.Reads, slot.Bytes = append(slot.Reads, 0), append(slot.Bytes, 0)
		slot.Writes = append(slot.Writes, writes)
	}
	var p past
	p.merge([]admin.LoadHistory{{Node: 1, Slots: []admin.LoadSlot{slot}}})
	kept := len(p.nodes[1].slots[0].Partitions)
	if kept < maxPast/200 || p.nodes[1].slots[0].LeftOut != partitions-kept {
		t.Errorf("%d partitions are kept, %d left out", kept, p.nodes[1].slots[0].LeftOut)
	}
	view := rowsOf(all)
	p.fill(view, all, "writes")
	cells, err := base64.StdEncoding.DecodeString(view.Cells)
	if err != nil || len(view.Rows) != heatRows || len(cells) != heatRows || view.Columns != 1 {
		t.Fatalf("%d rows, %d cells: %v", len(view.Rows), len(cells), err)
	}
	hottest, sum := 0, 0.0
	for i, row := range view.Rows {
		if cells[i] > cells[hottest] {
			hottest = i
		}
		sum += row.Now
	}
	row := view.Rows[hottest]
	if row.First > busy+1 || row.Last < busy+1 || cells[hottest] != 255 ||
		view.Max < 1000 || sum < float64(kept)+900 || sum > float64(kept)+1100 {
		t.Errorf("the hottest row is %+v, the sum %.0f, the highest %.0f", row, sum, view.Max)
	}
	if encoded, err := json.Marshal(view); err != nil || len(encoded) > 32<<10 {
		t.Errorf("the answer has %d bytes: %v", len(encoded), err)
	}
	for _, c := range []struct {
		keyspace string
		from, to uint64
		count    int
		rowsAre  int
		first    uint64
	}{{"", 0, 0, partitions, heatRows, 1}, {"b", 0, 0, partitions / 2, heatRows, partitions/2 + 1},
		{"", row.First, row.Last, row.Count, min(row.Count, heatRows), row.First},
		{"", busy + 1, busy + 1, 1, 1, busy + 1}, {"none", 0, 0, 0, 0, 0},
		{"a", 1 << 60, 1 << 61, partitions / 2, heatRows, 1}, {"", 20, 10, 0, 0, 0}} {
		chosen := zoomed(all, c.keyspace, c.from, c.to)
		view := rowsOf(chosen)
		p.fill(view, chosen, "bytes")
		if len(chosen) != c.count || len(view.Rows) != c.rowsAre ||
			c.count > 0 && view.Rows[0].First != c.first {
			t.Errorf("%+v: %d partitions, %d rows", c, len(chosen), len(view.Rows))
		}
	}
}

// Pages get the load of the last hour, and the map.
func TestPagesShowThePast(t *testing.T) {
	s := open(t, nil)
	s.cluster.points = []admin.LoadPoint{point(0, 10*time.Second, 100)}
	for feed, want := range map[string]string{"history": `"reads":[10]`,
		"heat%3Fby=writes": `"partitions":3`} {
		p := s.follow(feed)
		if got := p.next(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", feed, got)
		}
		p.close()
	}
	s.wants(http.StatusNotFound, "no feed", http.MethodGet, "/console/api/live?feed=heats", "")
}
