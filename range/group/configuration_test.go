package group

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestConfigurationsModel: whatever steps are taken, Raft's configuration is this one's, and a
// majority here is one there.
func TestConfigurationsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := Founded(map[keys.ReplicaID]uint64{1: 1, 2: 2, 3: 3})
		next := keys.ReplicaID(4)
		raftHas := tracker.MakeProgressTracker(1, 0)
		cfg, trk, err := confchange.Restore(confchange.Changer{Tracker: raftHas, LastIndex: 1},
			now.ConfState())
		if err != nil {
			t.Fatal(err)
		}
		raftHas.Config, raftHas.Progress = cfg, trk
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			to := Configuration{Changed: true}
			for _, m := range now.Members {
				if m.Role = rapid.SampledFrom([]Role{m.Role, m.Role, 0, Voter, Learner, Incoming,
					Outgoing, Demoted}).Draw(t, "role"); m.Role != 0 {
					to.Members = append(to.Members, m)
				}
			}
			if rapid.Bool().Draw(t, "one more") {
				to.Members = append(to.Members, Member{Replica: next, Host: uint64(next), Role: Learner})
				next++
			}
			if now.Joint() && rapid.Bool().Draw(t, "leave") {
				to = now.Left()
			}
			change, err := now.stepTo(&to)
			if err != nil {
				continue
			}
			changer := confchange.Changer{Tracker: raftHas, LastIndex: 1}
			if change.LeaveJoint() {
				cfg, trk, err = changer.LeaveJoint()
			} else if auto, joint := change.EnterJoint(); joint {
				cfg, trk, err = changer.EnterJoint(auto, change.Changes...)
			} else {
				cfg, trk, err = changer.Simple(change.Changes...)
			}
			if err != nil {
				t.Fatalf("from %s to %s: %v", &now, &to, err)
			}
			raftHas.Config, raftHas.Progress = cfg, trk
			if now = to; !now.Agrees(raftHas.ConfState()) {
				t.Fatalf("%s is %v for Raft", &now, raftHas.ConfState())
			}
			encoded, err := proto.Marshal(now.ConfState())
			if err != nil {
				t.Fatal(err)
			}
			if back, ok := plausibleConfiguration(encoded); !ok || !back.Agrees(raftHas.ConfState()) {
				t.Fatalf("%s came back as %s", &now, &back)
			}
			votes := map[uint64]bool{}
			for _, m := range now.Members {
				votes[uint64(m.Replica)] = rapid.Bool().Draw(t, "vote")
			}
			quorum := now.Quorum(func(id keys.ReplicaID) bool { return votes[uint64(id)] })
			if won := raftHas.Voters.VoteResult(votes).String() == "VoteWon"; won != quorum {
				t.Fatalf("in %s with %v: a quorum is %v, and Raft says %v", &now, votes, quorum, won)
			}
		}
	})
}

// TestImplausibleConfigurations are refused, whatever has made them.
func TestImplausibleConfigurations(t *testing.T) {
	for _, s := range []*raftpb.ConfState{
		{},
		{Learners: []uint64{1}},
		{Voters: []uint64{1, 1}},
		{Voters: []uint64{0, 1}},
		{Voters: []uint64{1}, Learners: []uint64{1}},
		{Voters: []uint64{1}, LearnersNext: []uint64{2}},
		{Voters: []uint64{1}, AutoLeave: proto.Bool(true)},
		{Voters: []uint64{1}, VotersOutgoing: []uint64{2, 2}},
	} {
		encoded, err := proto.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := plausibleConfiguration(encoded); ok {
			t.Errorf("%v was taken for %s", s, &c)
		}
	}
	if _, ok := plausibleConfiguration([]byte("nonsense")); ok {
		t.Error("nonsense was taken for a configuration")
	}
}

// FuzzConfiguration: what a message brings does not panic, and what is taken is valid.
func FuzzConfiguration(f *testing.F) {
	founded := Founded(map[keys.ReplicaID]uint64{1: 1, 2: 2, 3: 3})
	seed, _ := proto.Marshal(founded.ConfState())
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := plausibleConfiguration(b); ok && (c.Validate() != nil ||
			!slices.IsSortedFunc(c.Members, func(a, b Member) int {
				return int(a.Replica) - int(b.Replica)
			})) {
			t.Errorf("%x was taken for %s", b, &c)
		}
	})
}
