package manifest

import (
	"bytes"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Partition is a partition as a plan is made of it.
type Partition struct {
	// Start is the first row; empty: the keyspace begins with it.
	Start []byte
	// Bytes is about how much it has.
	Bytes uint64
	// Nodes are the nodes that have a replica.
	Nodes []keys.NodeID
}

// UnitLimits bound a unit: it ends before a partition with which it would have more bytes, or more
// partitions. It has at least one partition.
type UnitLimits struct {
	Bytes      uint64
	Partitions int
}

// Cut makes units of the partitions of a keyspace, which are in the order of their rows and have no
// hole between them.
func Cut(id keys.KeyspaceID, partitions []Partition, limits UnitLimits) (units []Unit) {
	for begin := 0; begin < len(partitions); {
		end, size := begin+1, partitions[begin].Bytes
		for end < len(partitions) && end-begin < limits.Partitions &&
			size+partitions[end].Bytes <= limits.Bytes {
			size += partitions[end].Bytes
			end++
		}
		u := Unit{Keyspace: uint32(id), Start: partitions[begin].Start}
		if begin == 0 {
			u.Start = nil
		}
		if end < len(partitions) {
			u.End = partitions[end].Start
		}
		units = append(units, u)
		begin = end
	}
	return units
}

// Near are the nodes with replicas of the partitions that have rows in a span, those of most
// partitions first.
func Near(partitions []Partition, span keys.Span) (all []keys.NodeID) {
	count := make(map[keys.NodeID]int)
	begin, found := slices.BinarySearchFunc(partitions, span.Start, func(p Partition, row []byte) int {
		return bytes.Compare(p.Start, row)
	})
	if !found && begin > 0 {
		begin--
	}
	for i := begin; i < len(partitions); i++ {
		if len(span.End) > 0 && bytes.Compare(partitions[i].Start, span.End) >= 0 {
			break
		}
		for _, n := range partitions[i].Nodes {
			if count[n] == 0 {
				all = append(all, n)
			}
			count[n]++
		}
	}
	slices.SortStableFunc(all, func(a, b keys.NodeID) int { return count[b] - count[a] })
	return all
}

// Splits are the rows at which partitions begin, without that of the first one.
func Splits(partitions []Partition) (rows [][]byte) {
	for i := range partitions {
		if i > 0 {
			rows = append(rows, partitions[i].Start)
		}
	}
	return rows
}

// Overlapping returns the pieces of a manifest that may have a row in a span of a keyspace, in the
// order of their rows.
func (m *Manifest) Overlapping(id uint32, span keys.Span) (pieces []Piece) {
	for i := range m.Units {
		if m.Units[i].Keyspace != id || !m.Units[i].Span().Overlaps(span) {
			continue
		}
		for _, p := range m.Done[i].Pieces {
			if (len(span.End) == 0 || bytes.Compare(p.First, span.End) < 0) &&
				bytes.Compare(p.Last, span.Start) >= 0 {
				pieces = append(pieces, p)
			}
		}
	}
	return pieces
}
