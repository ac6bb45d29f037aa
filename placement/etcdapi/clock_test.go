package etcdapi

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Whatever a minority of the clocks show, and whichever were not heard: if a majority of the clocks
// are right, true time is in the interval; and if all were heard, the interval is no wider than the
// right clocks are apart.
func TestTheTimeByAMajority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const now, apart, hour = int64(1e18), int64(1e8), int64(3600e9)
		members := rapid.IntRange(1, 7).Draw(t, "members")
		wrong := rapid.IntRange(0, (members-1)/2).Draw(t, "wrong")
		var clocks []int64
		for i := range members {
			off := rapid.Int64Range(-apart, apart)
			if i < wrong {
				off = rapid.Int64Range(-hour, hour)
			}
			clocks = append(clocks, now+off.Draw(t, "off"))
		}
		clocks = rapid.Permutation(clocks).Draw(t, "order")
		heard := clocks[:rapid.IntRange(0, members).Draw(t, "heard")]
		earliest, latest, ok := byMajority(heard, members)
		switch majority := members/2 + 1; {
		case ok != (len(heard) >= majority):
			t.Fatalf("%d of %d heard: %t", len(heard), members, ok)
		case !ok:
		case earliest > now+apart || latest < now-apart || earliest > latest:
			t.Fatalf("from %d to %d", earliest-now, latest-now)
		case len(heard) == members && (earliest < now-apart || latest > now+apart):
			t.Fatalf("all heard, from %d to %d", earliest-now, latest-now)
		}
	})
}

// A member without a majority of the clocks does not guess. A learner tells the time as well.
func TestTheTimeIsTold(t *testing.T) {
	learner := &alone{clocks: []int64{30, 10, 20}}
	learner.learner.Store(true)
	all := &shared{Config: Config{Cluster: learner}}
	server := &clockServer{shared: all}
	r, err := server.Read(t.Context(), &coordpb.ReadClockRequest{})
	if err != nil || r.Earliest != 10 || r.Latest != 30 {
		t.Errorf("%v, %v", r, err)
	}
	learner.clocks = learner.clocks[:2]
	if _, err := server.Read(t.Context(), &coordpb.ReadClockRequest{}); status.Code(err) !=
		codes.Unavailable {
		t.Errorf("two clocks of five: %v", err)
	}
	g := &guard{shared: all}
	if err := g.admitToLearner(&coordpb.ReadClockRequest{}); err != nil {
		t.Error(err)
	}
}
