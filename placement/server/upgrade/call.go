package upgrade

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

const (
	// MinAuto and MaxAuto limit the time of automatic finalisation.
	MinAuto, MaxAuto = time.Minute, 365 * 24 * time.Hour
	// hearing is the time that a new leader waits before it reports that a server does not answer.
	// Nodes send heartbeats, and members announce themselves, at least every two seconds.
	hearing = 6 * time.Second
	// maxNamed is the number of obstacles that the error of a refused finalisation names.
	maxNamed = 10
)

// Call implements Upgrade of the service Cluster. Only the leader answers. On request it finalises
// the upgrade, or sets the timer. It returns the resulting state. A finalisation returns when the
// coming level is recorded. The level becomes active shortly afterwards.
func (u *Upgrade) Call(
	ctx context.Context, r *clusterpb.UpgradeRequest,
) (*clusterpb.UpgradeResponse, error) {
	if ms := r.GetAutoAfterMillis(); ms != 0 &&
		(ms < uint64(MinAuto.Milliseconds()) || ms > uint64(MaxAuto.Milliseconds())) {
		return nil, status.Errorf(codes.InvalidArgument, "the time after which an upgrade is finalised "+
			"by itself is %d ms; want %s to %s, or 0 for never", ms, MinAuto, MaxAuto)
	}
	v, done, err := u.config.Meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	record, err := Load(v)
	if err != nil {
		return nil, u.config.Meta.Status(err)
	}
	l, _ := u.config.Store.Leadership()
	heard := u.heardFor(l.Term)
	servers, err := u.servers(v)
	if err != nil {
		return nil, u.config.Meta.Status(err)
	}
	target, obstacles := record.assess(servers)
	if r.Finalize && target > record.coming() {
		switch {
		case obstacles > 0 && heard < hearing:
			return nil, hint.Unavailable("this member of the core leads since a moment ago, and has not " +
				"heard every server yet; try again in a few seconds")
		case obstacles > 0:
			return nil, refusal(target, obstacles, servers)
		}
		next := record.next()
		next.Coming = uint32(target)
		if record, err = u.commit(ctx, v, record, next, "asked for",
			"servers note "+target.String()); err != nil {
			return nil, err
		}
		u.notify(servers)
	}
	if r.AutoAfterMillis != nil && r.GetAutoAfterMillis() != record.GetAutoAfterMillis() {
		next := record.next()
		next.AutoAfterMillis = r.GetAutoAfterMillis()
		text := "upgrades are not finalised by themselves"
		if after := r.GetAutoAfterMillis(); after > 0 {
			text = fmt.Sprintf("upgrades are finalised by themselves after %s",
				time.Duration(after)*time.Millisecond)
		}
		if record, err = u.commit(ctx, v, record, next, "asked for", text); err != nil {
			return nil, err
		}
	}
	u.poke()
	return u.response(record, target, servers), nil
}

// next returns a copy of the record that can be changed.
func (r Record) next() *serverpb.Level {
	next := proto.Clone(r.Level).(*serverpb.Level)
	next.Coming = uint32(r.coming())
	return next
}

// commit writes the record and an event, and returns the new record.
func (u *Upgrade) commit(ctx context.Context, v *store.View, before Record, next *serverpb.Level,
	reason, outcome string) (Record, error) {
	ok, err := u.config.Meta.CommitEvent(ctx,
		&clusterpb.Event{Kind: "upgrade", Reason: reason, Outcome: outcome},
		[]*storepb.Compare{before.Unchanged()},
		store.Put([]byte(meta.LevelKey), meta.Encode(next)))
	if err == nil && !ok {
		err = meta.Conflict("the cluster's level")
	}
	if err != nil {
		return before, err
	}
	u.config.Logger.Info("the record of the cluster's level has changed", "active", next.Active,
		"coming", next.Coming, "outcome", outcome, "reason", reason)
	after, err := Load(u.config.Store.Stale())
	return after, u.config.Meta.Status(err)
}

// refusal returns the error of a finalisation that some servers prevent.
func refusal(target release.Level, obstacles int, servers []server) error {
	var named []string
	for _, s := range servers {
		if s.Obstacle != "" && len(named) < maxNamed {
			named = append(named, s.name()+": "+s.Obstacle)
		}
	}
	if more := obstacles - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more; `tidemark upgrade status` lists them", more))
	}
	return status.Errorf(codes.FailedPrecondition, "the upgrade to %s cannot be finalised yet, "+
		"nothing was changed: %s", target, strings.Join(named, "; "))
}

// name returns a text that names the server.
func (s server) name() string {
	what := "the server"
	switch {
	case s.Node != 0 && s.Member != 0:
		what = fmt.Sprintf("node %d (member %d of the core)", s.Node, s.Member)
	case s.Node != 0:
		what = fmt.Sprintf("node %d", s.Node)
	case s.Member != 0:
		what = fmt.Sprintf("member %d of the core", s.Member)
	}
	return what + " at " + s.Address
}

// response returns a record and the servers, with their obstacles for the target.
func (u *Upgrade) response(
	record Record, target release.Level, servers []server,
) *clusterpb.UpgradeResponse {
	out := &clusterpb.UpgradeResponse{Level: record.State(), Target: uint32(target),
		AutoAfterMillis: record.GetAutoAfterMillis(), NowUnixMs: time.Now().UnixMilli()}
	if release.Level(record.GetReadyLevel()) == target && target > record.active() {
		out.ReadySinceUnixMs = record.GetReadySinceUnixMs()
	}
	for l := release.Before; l <= max(target, u.config.Supported.Max); l++ {
		out.Releases = append(out.Releases, l.Release())
	}
	for _, s := range servers {
		out.Servers = append(out.Servers, s.UpgradeServer)
	}
	for _, g := range release.Opened(record.active(), target) {
		out.Gates = append(out.Gates, &clusterpb.UpgradeGate{Name: g.Name, Level: uint32(g.Level),
			What: g.What})
	}
	return out
}
