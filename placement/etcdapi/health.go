package etcdapi

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

var errLeaderless = errors.New("RAFT NO LEADER")

// Healthy says why this member does not serve, in etcd's words; nil if it does. It needs that no
// alarm is raised, a leader
// and a quorum, or if serializable, this member alone.
func (s *Services) Healthy(ctx context.Context, serializable bool) error {
	b := s.guard.backend
	if err := b.alarmed(); err != nil {
		return err
	}
	if !serializable {
		if l, _ := b.Store.Leadership(); l.Leader == 0 {
			return errLeaderless
		}
		if err := b.confirm(ctx); err != nil {
			return rangeError(err)
		}
	}
	_, release, err := b.Store.ReadTxnAs(ctx, nil, one(&storepb.Op{Op: &storepb.Op_Range{
		Range: &storepb.Range{Key: []byte{0}, KeysOnly: true, Limit: 1}}}))
	release()
	if err != nil {
		return rangeError(b.toGRPC(ctx, err))
	}
	return nil
}

func rangeError(err error) error {
	return fmt.Errorf("RANGE ERROR:%s", status.Convert(err).Message())
}

// Versions are those of etcd that clients are told: of the server, the cluster, and what it stores.
func (s *Services) Versions() (server, cluster, storage string) {
	minor := s.guard.minorVersion() + ".0"
	return s.guard.Version, minor, minor
}
