package keys

import (
	"bytes"
	"cmp"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Consumes says whether a partition has been merged into another one, or into one that d came from,
// given any descriptor that it had.
//
// The key at which a partition begins changes hands only by a merge: a split leaves it to the left
// part, which keeps the id. And the generation of the partition that has a key only rises. So a
// partition that has the start of p, with a higher generation, has got it by consuming p.
func Consumes(d, p *clusterpb.Partition) bool {
	return d.GetId() != p.GetId() && d.GetGeneration() > p.GetGeneration() &&
		bytes.Compare(d.GetStart(), p.GetStart()) <= 0 && bytes.Compare(p.GetStart(), d.GetEnd()) < 0
}

// CompareEpochs orders descriptors of one partition: by generation, then by membership.
func CompareEpochs(a, b *clusterpb.Partition) int {
	return cmp.Or(cmp.Compare(a.GetGeneration(), b.GetGeneration()),
		cmp.Compare(a.GetMembership(), b.GetMembership()))
}
