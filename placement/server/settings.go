package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/operators"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Limits of the settings.
const (
	minDelay, maxDelay = time.Second, 30 * 24 * time.Hour
	maxSnapshots       = 1000
)

// placementSettings are the settings that an operator of the cluster has set. Fields that are not
// set are nil.
type placementSettings struct{ *clusterpb.PlacementSettings }

func loadSettings(v *store.View) (placementSettings, error) {
	set := &clusterpb.PlacementSettings{}
	_, err := meta.Load(v, []byte(meta.SettingsKey), set)
	return placementSettings{set}, err
}

// planner returns the planner's settings. Fields that are not set come from otherwise.
func (p placementSettings) planner(otherwise planner.Settings) planner.Settings {
	out := otherwise
	out.Paused, out.NodesReturn, out.Merges = p.GetPaused(), true, true
	for _, d := range []struct {
		set *uint64
		to  *time.Duration
	}{{p.RepairDelayMillis, &out.RepairDelay}, {p.PauseMillis, &out.Pause},
		{p.MergePauseMillis, &out.MergePause}} {
		if d.set != nil {
			*d.to = time.Duration(*d.set) * time.Millisecond
		}
	}
	for _, n := range []struct {
		set *uint32
		to  *int
	}{{p.NodeSnapshots, &out.NodeInFlight}, {p.ZoneSnapshots, &out.ZoneInFlight},
		{p.Operators, &out.MaxOperators}} {
		if n.set != nil {
			*n.to = int(*n.set)
		}
	}
	out.EnsureDefaults()
	return out
}

// complete returns the settings that are in effect.
func (p placementSettings) complete(otherwise planner.Settings) *clusterpb.PlacementSettings {
	s := p.planner(otherwise)
	return &clusterpb.PlacementSettings{Paused: proto.Bool(s.Paused),
		RepairDelayMillis: proto.Uint64(uint64(s.RepairDelay.Milliseconds())),
		NodeSnapshots:     proto.Uint32(uint32(s.NodeInFlight)),
		ZoneSnapshots:     proto.Uint32(uint32(s.ZoneInFlight)),
		Operators:         proto.Uint32(uint32(s.MaxOperators)),
		PauseMillis:       proto.Uint64(uint64(s.Pause.Milliseconds())),
		MergePauseMillis:  proto.Uint64(uint64(s.MergePause.Milliseconds()))}
}

func validateSettings(c *clusterpb.PlacementSettings) error {
	for _, d := range []struct {
		name string
		set  *uint64
	}{{"repair delay", c.RepairDelayMillis}, {"pause", c.PauseMillis},
		{"pause before merges", c.MergePauseMillis}} {
		if d.set == nil {
			continue
		}
		// The check comes before the conversion to a duration, which a large number would overflow.
		if *d.set < uint64(minDelay.Milliseconds()) || *d.set > uint64(maxDelay.Milliseconds()) {
			return status.Errorf(codes.InvalidArgument, "the %s is %d ms; want %s to %s", d.name, *d.set,
				minDelay, maxDelay)
		}
	}
	for _, n := range []struct {
		name string
		set  *uint32
		most uint32
	}{{"number of snapshots for each node", c.NodeSnapshots, maxSnapshots},
		{"number of snapshots for each zone", c.ZoneSnapshots, maxSnapshots},
		{"number of operators", c.Operators, operators.Max}} {
		if n.set != nil && (*n.set < 1 || *n.set > n.most) {
			return status.Errorf(codes.InvalidArgument, "the %s is %d; want 1 to %d", n.name, *n.set,
				n.most)
		}
	}
	return nil
}

// SetPlacement changes the settings of placement, and returns the settings that are in effect then.
// Only the leader answers.
func (s *Server) SetPlacement(
	ctx context.Context, r *clusterpb.SetPlacementRequest,
) (*clusterpb.SetPlacementResponse, error) {
	change := r.Change
	if change == nil {
		change = &clusterpb.PlacementSettings{}
	}
	if err := validateSettings(change); err != nil {
		return nil, err
	}
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	now := placementSettings{&clusterpb.PlacementSettings{}}
	revision, err := meta.Load(v, []byte(meta.SettingsKey), now.PlacementSettings)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	before := now.complete(s.config.Planner)
	proto.Merge(now.PlacementSettings, change)
	after := now.complete(s.config.Planner)
	if !proto.Equal(before, after) {
		text := "placement is paused"
		switch {
		case before.GetPaused() == after.GetPaused():
			text = "limits: " + after.String()
		case !after.GetPaused():
			text = "placement goes on"
		}
		ok, err := s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "settings", Reason: "asked for",
			Outcome: text}, []*storepb.Compare{store.ModifiedAt([]byte(meta.SettingsKey), revision)},
			store.Put([]byte(meta.SettingsKey), meta.Encode(now.PlacementSettings)))
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, meta.Conflict("placement's settings")
		}
		s.config.Logger.Info("placement's settings change", "settings", after.String())
	}
	// The scheduler is told even if nothing has changed: an earlier request may have been applied
	// after its deadline.
	if err := s.scheduler.setSettings(now); err != nil {
		return nil, s.meta.Status(err)
	}
	return &clusterpb.SetPlacementResponse{Settings: after}, nil
}

func (c *scheduler) setSettings(p placementSettings) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return nil
	}
	return c.state.SetSettings(p.planner(c.server.config.Planner))
}
