package store

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// Leases lists the leases that exist as far as this member knows, as LeasesAs does.
func (s *Store) Leases() []int64 { return s.lessor.IDs() }

// LeasesAs lists the leases that this member knows and that a client may see, in the order in which
// they run out. If Read returned before, the list has all leases whose grant was acknowledged
// anywhere before Read was called. The order is right on the leader; other members do not know of
// renewals. who is nil for the servers themselves.
//
// An administrator sees all leases. Any other user sees those with keys, all of which the user may
// read: a caller that knows the id of a lease without keys can revoke it.
func (s *Store) LeasesAs(ctx context.Context, who *storepb.AuthInfo) ([]int64, error) {
	var visible map[int64]bool
	err := s.ReadWhole(func(r *tables.Reader) error {
		state, err := s.AuthorityOf(r)
		if err != nil || state == nil || state.Admin(who) == nil {
			return err
		}
		if err := state.Identified(who); err != nil {
			return err
		}
		visible, err = r.ReadableLeases(ctx, func(key []byte) error {
			return state.Read(who, key, nil)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	all := s.lessor.IDs()
	if visible != nil {
		all = slices.DeleteFunc(all, func(id int64) bool { return !visible[id] })
	}
	return all, nil
}
