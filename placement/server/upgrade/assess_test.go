package upgrade

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func record(active, coming uint32) Record {
	return Record{Level: &serverpb.Level{Active: active, Coming: coming}}
}

func levels(min, max, noted uint32) *clusterpb.Levels {
	return &clusterpb.Levels{Min: min, Max: max, Noted: noted}
}

// of is a server that answers, or, with a name of "-", one that does not.
func of(node, member uint64, alive bool, l *clusterpb.Levels) server {
	return server{known: true, UpgradeServer: &clusterpb.UpgradeServer{Node: node, Member: member,
		Address: "a:1", Alive: alive, Levels: l}}
}

// Each server that may not support the next level is in the way, with what to do about it.
func TestObstacles(t *testing.T) {
	unknown := of(0, 3, false, nil)
	unknown.known = false
	for _, c := range []struct {
		name string
		s    server
		want []string
	}{
		{"new", of(1, 0, true, levels(1, 2, 1)), nil},
		{"new and silent", of(1, 0, false, levels(1, 2, 1)), nil},
		{"old", of(1, 0, true, levels(0, 1, 1)), []string{"no level above 1", "upgrade it"}},
		{"before levels", of(1, 0, true, nil), []string{"no level above 0", "upgrade it"}},
		{"old and silent", of(7, 0, false, levels(0, 1, 1)),
			[]string{"does not answer", "node decommission 7"}},
		{"old, silent and a member", of(7, 2, false, levels(0, 1, 1)),
			[]string{"core remove 2", "node decommission 7"}},
		{"unknown member", unknown, []string{"does not answer", "core remove"}},
		{"too new", of(1, 0, true, levels(3, 4, 3)), []string{"levels 3 to 4", "start a program of"}},
	} {
		r := record(1, 1)
		target, obstacles := r.assess([]server{of(9, 0, true, levels(1, 2, 1)), c.s})
		if target != 2 || (obstacles > 0) != (c.want != nil) {
			t.Errorf("%s: target %v, %d obstacles", c.name, target, obstacles)
		}
		for _, part := range c.want {
			if !strings.Contains(c.s.Obstacle, part) {
				t.Errorf("%s: %q lacks %q", c.name, c.s.Obstacle, part)
			}
		}
	}
}

// If no server supports a higher level there is nothing to finalise, and nobody is in the way.
func TestNothingToFinalise(t *testing.T) {
	r := record(1, 1)
	old := of(1, 0, false, levels(0, 1, 1))
	if target, obstacles := r.assess([]server{old}); target != 1 || obstacles != 0 ||
		old.Obstacle != "" {
		t.Errorf("target %v, %d obstacles: %s", target, obstacles, old.Obstacle)
	}
}

// Servers are admitted if they support the active and the coming level; the refusal is found in the
// error that comes over the network, and no other error is taken for one.
func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		active, coming uint32
		said           *clusterpb.Levels
		want           string
	}{
		{0, 0, nil, ""},
		{0, 1, nil, "was finalised"},
		{1, 1, nil, "was finalised"},
		{1, 1, levels(0, 1, 0), ""},
		{1, 2, levels(0, 1, 0), "was finalised"},
		{1, 2, levels(1, 2, 0), ""},
		{1, 2, levels(2, 3, 0), "more than one release apart"},
		{2, 2, levels(2, 3, 0), ""},
	} {
		err := record(c.active, c.coming).Admit("a:1", "v9", c.said)
		if (err == nil) != (c.want == "") || err != nil && (!Refused(err) ||
			status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "a:1 runs tidemark v9")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if Refused(nil) || Refused(status.Error(codes.FailedPrecondition, "something else")) {
		t.Error("another error is taken for a refusal")
	}
}

// The leader notes since when the cluster is ready, forgets that when a server goes back, finalises
// by the timer, and makes a level active when all that answer have noted it.
func TestDecide(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	long := time.Hour
	r := record(1, 1)
	fresh := []server{of(1, 1, true, levels(1, 2, 1)), of(2, 0, false, levels(1, 2, 1))}
	old := []server{of(1, 1, true, levels(1, 2, 1)), of(2, 0, true, levels(0, 1, 1))}
	become := func(servers []server, after time.Duration) bool {
		t.Helper()
		next, why, outcome := r.decide(servers, long, now.Add(after))
		if next == nil {
			return false
		}
		if why == "" || outcome == "" {
			t.Error("a change without words")
		}
		r.Level = next
		return true
	}
	if next, _, _ := r.decide(fresh, time.Second, now); next != nil {
		t.Errorf("a new leader decides: %v", next)
	}
	if become(old, 0) {
		t.Errorf("ready with an old server: %v", r)
	}
	if !become(fresh, 0) || r.ReadyLevel != 2 || r.ReadySinceUnixMs != now.UnixMilli() ||
		become(fresh, time.Hour) {
		t.Errorf("ready: %v", r)
	}
	if !become(old, time.Hour) || r.ReadySinceUnixMs != 0 || become(old, time.Hour) {
		t.Errorf("no longer ready: %v", r)
	}
	r.AutoAfterMillis = uint64(time.Hour.Milliseconds())
	if !become(fresh, 0) || become(fresh, time.Hour-1) ||
		r.lookAgain(now.Add(time.Hour)) > raiseAgain {
		t.Errorf("before the timer: %v", r)
	}
	if !become(fresh, time.Hour) || r.Coming != 2 || r.Active != 1 {
		t.Errorf("after the timer: %v", r)
	}
	if become(fresh, time.Hour) || become(old, time.Hour) {
		t.Errorf("active before it is noted: %v", r)
	}
	fresh[0].Levels.Noted = 2
	if !become(fresh, time.Hour) || r.Active != 2 || r.ReadySinceUnixMs != 0 {
		t.Errorf("active: %v", r)
	}
	if become(fresh, 2*time.Hour) {
		t.Errorf("there is nothing more to do: %v", r)
	}

	// A core that has lost the record is told by what servers have noted.
	lost := record(1, 1)
	if next, _, _ := lost.decide(fresh, 0, now); next.GetComing() != 2 || next.GetActive() != 1 {
		t.Errorf("a server has noted level 2: %v", next)
	}
	fresh[1].Levels.Active = 2
	if next, _, _ := lost.decide(fresh, 0, now); next.GetComing() != 2 || next.GetActive() != 2 {
		t.Errorf("a server goes by level 2: %v", next)
	}
	fresh[1].Levels.Active = 0
	if !proto.Equal(r.Level, &serverpb.Level{Active: 2, Coming: 2,
		AutoAfterMillis: uint64(time.Hour.Milliseconds())}) {
		t.Errorf("at the end: %v", r)
	}
}
