package admin

import (
	"context"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// PlacementSettings are the settings of placement. In a change, zero fields stay as they are.
type PlacementSettings struct {
	// Paused: no new operators are begun. Operators under way go on.
	Paused bool
	// RepairDelay is how long a node must be silent before its replicas are replaced.
	RepairDelay time.Duration
	// NodeSnapshots and ZoneSnapshots are how many snapshots a node, and all nodes of a zone
	// together, may receive at a time, and send.
	NodeSnapshots, ZoneSnapshots int
	// Operators is the largest number of operators under way.
	Operators int
	// Pause is the time after a change during which a partition is not changed again, except for
	// repairs.
	Pause time.Duration
	// MergePause is the time for which two neighbours must have been calm, and not have split,
	// before they merge.
	MergePause time.Duration
}

// Placement returns the settings of placement.
func (c *Client) Placement(ctx context.Context) (PlacementSettings, error) {
	return c.placement(ctx, &clusterpb.PlacementSettings{})
}

// PausePlacement pauses placement, or resumes it. Operators under way go on.
func (c *Client) PausePlacement(ctx context.Context, paused bool) (PlacementSettings, error) {
	return c.placement(ctx, &clusterpb.PlacementSettings{Paused: &paused})
}

// LimitPlacement changes the delays and limits that are not zero. Paused is ignored.
func (c *Client) LimitPlacement(ctx context.Context, s PlacementSettings) (PlacementSettings,
	error) {
	change := &clusterpb.PlacementSettings{}
	for _, d := range []struct {
		name  string
		value time.Duration
		to    **uint64
	}{{"repair delay", s.RepairDelay, &change.RepairDelayMillis}, {"pause", s.Pause,
		&change.PauseMillis}, {"pause before merges", s.MergePause, &change.MergePauseMillis}} {
		if d.value < 0 {
			return s, invalid("set placement", "", "a %s of %s", d.name, d.value)
		}
		if d.value != 0 {
			*d.to = new(uint64(d.value.Milliseconds()))
		}
	}
	for _, n := range []struct {
		name  string
		value int
		to    **uint32
	}{{"snapshots of a node", s.NodeSnapshots, &change.NodeSnapshots},
		{"snapshots of a zone", s.ZoneSnapshots, &change.ZoneSnapshots},
		{"operators", s.Operators, &change.Operators}} {
		if n.value < 0 || n.value > 1<<31-1 {
			return s, invalid("set placement", "", "%d %s", n.value, n.name)
		}
		if n.value != 0 {
			*n.to = new(uint32(n.value))
		}
	}
	return c.placement(ctx, change)
}

func (c *Client) placement(ctx context.Context, change *clusterpb.PlacementSettings) (
	PlacementSettings, error) {
	r, err := ask(ctx, c, "placement", "", clusterpb.ClusterClient.SetPlacement,
		&clusterpb.SetPlacementRequest{Change: change})
	return placementSettings(r.GetSettings()), err
}

func placementSettings(s *clusterpb.PlacementSettings) PlacementSettings {
	return PlacementSettings{Paused: s.GetPaused(),
		RepairDelay:   time.Duration(s.GetRepairDelayMillis()) * time.Millisecond,
		NodeSnapshots: int(s.GetNodeSnapshots()), ZoneSnapshots: int(s.GetZoneSnapshots()),
		Operators:  int(s.GetOperators()),
		Pause:      time.Duration(s.GetPauseMillis()) * time.Millisecond,
		MergePause: time.Duration(s.GetMergePauseMillis()) * time.Millisecond}
}

// DecodePlacement decodes the settings in a backup, in their JSON form.
func DecodePlacement(text []byte) (PlacementSettings, error) {
	s := new(clusterpb.PlacementSettings)
	err := protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, s)
	return placementSettings(s), err
}
