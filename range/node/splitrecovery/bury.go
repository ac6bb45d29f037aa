package splitrecovery

import (
	"bytes"
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Bury makes tombstones of the replicas whose partitions others have consumed, according to the
// state on disk, and returns the other replicas. live are the replicas here.
//
// INVARIANT: it comes before anything is applied. A consumed replica that opened would begin with
// nothing, or write to keys that belong to another replica by now. The merge that the state shows
// is durable: the log of a consumed replica is removed only after the merge is durable.
func (d *Directory) Bury(live []raftlog.Identity) (left []raftlog.Identity, buried int, err error) {
	left, consumed, gone, err := d.subsumedOf(live)
	if err != nil {
		return nil, 0, err
	}
	if len(gone) > 0 {
		if err := storage.DeleteOwn(d.State, gone...); err != nil {
			return nil, 0, err
		}
	}
	if len(consumed) > 0 {
		err = d.Log.Remove(consumed...)
	}
	return left, len(consumed), err
}

// Left returns the replicas that Bury would leave.
func (d *Directory) Left(live []raftlog.Identity) ([]raftlog.Identity, error) {
	left, _, _, err := d.subsumedOf(live)
	return left, err
}

// WasSubsumed reports whether another partition has consumed that of a replica, according to the
// state on disk. id may be the replica's tombstone.
func (d *Directory) WasSubsumed(id raftlog.Identity) (bool, error) {
	owners, _, err := d.owners()
	if _, here := owners.at[id.Group]; here || err != nil {
		return false, err
	}
	return owners.subsumed(id), nil
}

// subsumedOf separates the replicas whose partitions others have consumed from those that are left.
// gone are partitions that are recorded in the state, and were consumed.
func (d *Directory) subsumedOf(live []raftlog.Identity) (left, consumed []raftlog.Identity,
	gone []keys.PartitionID, err error) {
	owners, gone, err := d.owners()
	if err != nil {
		return nil, nil, nil, err
	}
	for _, id := range live {
		if _, here := owners.at[id.Group]; here || !owners.subsumed(id) {
			left = append(left, id)
		} else {
			consumed = append(consumed, id)
		}
	}
	return left, consumed, gone, nil
}

// owners are the partitions whose spans the state has, by their starts.
type owners struct {
	order []*clusterpb.Partition
	at    map[keys.PartitionID]struct{}
}

// owners reads them. gone are partitions that are recorded too, and were consumed by one of them.
func (d *Directory) owners() (o owners, gone []keys.PartitionID, err error) {
	var all []*clusterpb.Partition
	err = storage.EachRecorded(d.State, func(_ keys.PartitionID, r storage.Recorded, err error) {
		if err == nil {
			all = append(all, r.Descriptor)
		}
	})
	slices.SortFunc(all, func(a, b *clusterpb.Partition) int {
		return cmp.Or(bytes.Compare(a.Start, b.Start), cmp.Compare(b.Generation, a.Generation))
	})
	o.at = make(map[keys.PartitionID]struct{}, len(all))
	for _, p := range all {
		if by := o.covering(p.Start); by != nil && keys.Subsumes(by, p) {
			gone = append(gone, keys.PartitionID(p.Id))
			continue
		}
		o.order = append(o.order, p)
		o.at[keys.PartitionID(p.Id)] = struct{}{}
	}
	return o, gone, err
}

// covering returns the partition that has a key; nil if there is none.
func (o *owners) covering(key []byte) *clusterpb.Partition {
	i, found := slices.BinarySearchFunc(o.order, key,
		func(p *clusterpb.Partition, key []byte) int { return bytes.Compare(p.Start, key) })
	if !found {
		i--
	}
	if i < 0 || !keys.PartitionSpan(o.order[i]).Contains(key) {
		return nil
	}
	return o.order[i]
}

// subsumed reports whether the partition of a replica of which the state has nothing was consumed.
func (o *owners) subsumed(id raftlog.Identity) bool {
	p := &clusterpb.Partition{}
	if proto.Unmarshal(id.Descriptor, p) != nil {
		return false
	}
	by := o.covering(p.Start)
	return by != nil && keys.Subsumes(by, p)
}
