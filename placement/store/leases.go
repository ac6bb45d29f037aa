package store

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// Leases lists the leases that this member knows, in the order of LeasesAs.
func (s *Store) Leases() []int64 { return s.lessor.IDs() }

// LeasesAs lists the leases that this member knows and that a client may see, in the order of their
// expiry. If the caller calls Read first, the list has all leases whose grant was acknowledged
// anywhere before Read was called. Only the leader's order is exact: other members do not know of
// renewals. who is nil for servers.
//
// An administrator sees all leases. Any other user sees the leases that have keys, if the user may
// read all of the keys. Leases without keys stay hidden, since a caller that knows such a lease's
// id can revoke the lease.
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
