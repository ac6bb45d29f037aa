package etcdapi

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

var (
	errLeaderless = errors.New("RAFT NO LEADER")
	errCorrupt    = errors.New("alarm activated: CORRUPT")
)

// Healthy says why this member does not serve, in etcd's words; nil if it does. It needs that no
// alarm is raised but those of the excluded names (NOSPACE, CORRUPT), and a leader and a quorum, or
// if serializable, this member alone.
func (s *Services) Healthy(
	ctx context.Context, serializable bool, excluded map[string]bool,
) error {
	b := s.guard.backend
	for _, alarm := range b.Store.Alarms() {
		if name := fromAlarm(alarm).Alarm.String(); !excluded[name] {
			return fmt.Errorf("ALARM %s", name)
		}
	}
	if !serializable {
		if l, _ := b.Store.Leadership(); l.Leader == 0 {
			return errLeaderless
		}
	}
	if err := s.Readable(ctx, serializable); err != nil {
		return rangeError(err)
	}
	return nil
}

// Readable says why a client could read nothing: what this member has, if serializable, or what was
// acknowledged anywhere. Users and rights do not matter.
func (s *Services) Readable(ctx context.Context, serializable bool) error {
	b := s.guard.backend
	if !serializable {
		if err := b.confirm(ctx); err != nil {
			return err
		}
	}
	_, release, err := b.Store.ReadTxnAs(ctx, nil, one(&storepb.Op{Op: &storepb.Op_Range{
		Range: &storepb.Range{Key: []byte{0}, KeysOnly: true, Limit: 1}}}))
	release()
	return b.toGRPC(ctx, err)
}

// Corrupt says that the alarm CORRUPT is raised; nil if it is not.
func (s *Services) Corrupt() error {
	for _, alarm := range s.guard.backend.Store.Alarms() {
		if alarm.Type == storepb.Alarm_CORRUPT {
			return errCorrupt
		}
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
