package manifest

import (
	"bytes"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Partition describes a partition for Cut.
type Partition struct {
	// Start is the first row. It is empty for the first partition of a keyspace.
	Start []byte
	// Bytes is the approximate size of the partition.
	Bytes uint64
	// Nodes are the nodes that have a replica of the partition.
	Nodes []keys.NodeID
}

// UnitLimits limit a unit. A unit ends before the partition with which it would exceed Bytes or
// Partitions. It has at least one partition.
type UnitLimits struct {
	Bytes      uint64
	Partitions int
}

// Cut divides the partitions of a keyspace into units. The partitions must be in the order of their
// rows and without gaps.
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

// Near returns the nodes with replicas of the partitions that have rows in a span. Nodes with
// replicas of more partitions come first.
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

// Splits returns the first rows of all partitions but the first.
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
