package console

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/url"
	"slices"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// heatView is the feed "heat?keyspace=&by=&from=&to=": the load of partitions over the last hour.
// Keys go downwards, and time goes to the right. A row is one partition, or several neighbours if
// there are more than heatRows partitions.
type heatView struct {
	// Begin is the time of the first column, in Unix milliseconds. Each column covers Step
	// milliseconds.
	Begin   int64     `json:"begin"`
	Step    int64     `json:"step"`
	Columns int       `json:"columns"`
	Rows    []heatRow `json:"rows"`
	// Cells has a byte for each cell, row after row, in base64. 0 means no load. 1 to 255 is a
	// logarithmic scale up to Max, which is a number per second.
	Cells string  `json:"cells"`
	Max   float64 `json:"max"`
	// Partitions is the number of partitions in all rows.
	Partitions int `json:"partitions"`
	// Silent has the nodes that did not answer. LeftOut counts how many times a partition was left out
	// of a column because of a limit.
	Silent  []uint64 `json:"silent,omitempty"`
	LeftOut int      `json:"leftOut,omitempty"`
}

// heatRow is one partition, or several neighbours from First to Last.
type heatRow struct {
	Keyspace string `json:"keyspace"`
	Label    string `json:"label"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Count    int    `json:"count"`
	// Now is the newest number per second.
	Now float64 `json:"now"`
}

// heatRows limits the number of rows.
const heatRows = 96

func (c *Console) heat(ctx context.Context, v *viewer, cluster Cluster, p url.Values) (any, error) {
	if err := v.past.update(ctx, v, cluster); err != nil {
		return nil, err
	}
	all, err := v.partitions(ctx, cluster)
	if err != nil {
		return nil, err
	}
	chosen := zoomed(all, p.Get("keyspace"), uint64(number(p, "from", 0)),
		uint64(number(p, "to", 0)))
	view := rowsOf(chosen)
	v.past.fill(view, chosen, p.Get("by"))
	return view, nil
}

// zoomed returns the partitions of a keyspace between two partitions. If one of these is gone,
// there is no limit on its side.
func zoomed(all []admin.PartitionInfo, keyspace string, from, to uint64) []admin.PartitionInfo {
	if keyspace != "" {
		first := slices.IndexFunc(all,
			func(p admin.PartitionInfo) bool { return p.Keyspace == keyspace })
		if first < 0 {
			return nil
		}
		all = all[first:]
		if end := slices.IndexFunc(all,
			func(p admin.PartitionInfo) bool { return p.Keyspace != keyspace }); end >= 0 {
			all = all[:end]
		}
	}
	first := slices.IndexFunc(all, func(p admin.PartitionInfo) bool { return p.ID == from })
	last := slices.IndexFunc(all, func(p admin.PartitionInfo) bool { return p.ID == to })
	if last >= 0 {
		all = all[:last+1]
	}
	return all[max(0, min(first, len(all))):]
}

// rowsOf divides partitions into rows with about equal numbers of partitions.
func rowsOf(chosen []admin.PartitionInfo) *heatView {
	view := &heatView{Step: slotStep.Milliseconds(), Rows: []heatRow{}, Partitions: len(chosen)}
	rows := min(len(chosen), heatRows)
	for i := range rows {
		part := chosen[i*len(chosen)/rows : (i+1)*len(chosen)/rows]
		first, last := &part[0], &part[len(part)-1]
		row := heatRow{Keyspace: first.Keyspace, Label: spanText(first), First: first.ID,
			Last: last.ID, Count: len(part)}
		if len(part) > 1 {
			row.Label = fmt.Sprintf("%d partitions from %s", len(part), spanText(first))
			if last.Keyspace != first.Keyspace {
				row.Keyspace += " … " + last.Keyspace
			}
		}
		view.Rows = append(view.Rows, row)
	}
	return view
}

// fill adds the numbers.
func (p *past) fill(view *heatView, chosen []admin.PartitionInfo, by string) {
	rowOf := make(map[uint64]int, len(chosen))
	for i := range view.Rows {
		for _, x := range chosen[i*len(chosen)/len(view.Rows) : (i+1)*len(chosen)/len(view.Rows)] {
			rowOf[x.ID] = i
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	view.Silent = p.silent
	var lists [][]stretch
	for _, n := range p.nodes {
		lists = append(lists, stretches(n.slots, func(x *admin.LoadSlot) stretch {
			return stretch{x.Begin, x.Measured}
		}))
	}
	first, last, ok := complete(lists, slotStep)
	if !ok || len(view.Rows) == 0 {
		return
	}
	view.Begin, view.Columns = first.UnixMilli(), steps(first, last, slotStep)
	sums := make([]float64, len(view.Rows)*view.Columns)
	for _, n := range p.nodes {
		for i := range n.slots {
			s := &n.slots[i]
			if s.Begin.Before(first) || s.Begin.After(last) || s.Measured <= 0 {
				continue
			}
			view.LeftOut += s.LeftOut
			column := int(s.Begin.Sub(first) / slotStep)
			counts := s.Reads
			switch by {
			case "writes":
				counts = s.Writes
			case "bytes":
				counts = s.Bytes
			}
			for j, id := range s.Partitions {
				if row, ok := rowOf[id]; ok {
					sums[row*view.Columns+column] += float64(counts[j]) / s.Measured.Seconds()
				}
			}
		}
	}
	view.encode(sums)
}

// encode encodes the cells.
func (h *heatView) encode(sums []float64) {
	for _, x := range sums {
		h.Max = max(h.Max, x)
	}
	cells := make([]byte, len(sums))
	for i, x := range sums {
		if x > 0 {
			cells[i] = byte(1 + math.Round(254*math.Log1p(x)/math.Log1p(h.Max)))
		}
	}
	for i := range h.Rows {
		h.Rows[i].Now = math.Round(sums[(i+1)*h.Columns-1])
	}
	h.Max = math.Round(h.Max*10) / 10
	h.Cells = base64.StdEncoding.EncodeToString(cells)
}
