package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// change gives the replicas of a descriptor other roles, and raises its membership. A role of -1
// takes a replica out.
func change(d *clusterpb.Partition, roles map[uint64]clusterpb.ReplicaRole) *clusterpb.Partition {
	next := proto.Clone(d).(*clusterpb.Partition)
	next.Membership++
	next.Replicas = nil
	for _, r := range d.Replicas {
		role, changes := roles[r.Replica]
		if changes && role < 0 {
			continue
		}
		copied := proto.Clone(r).(*clusterpb.Replica)
		if changes {
			copied.Role = role
		}
		next.Replicas = append(next.Replicas, copied)
	}
	for id, role := range roles {
		if !hasReplica(d, id) {
			next.Replicas = append(next.Replicas, &clusterpb.Replica{Node: 10 + id, Replica: id,
				Role: role})
		}
	}
	return next
}

func hasReplica(d *clusterpb.Partition, id uint64) bool {
	for _, r := range d.Replicas {
		if r.Replica == id {
			return true
		}
	}
	return false
}

// TestReplicasOfAPartitionChange: by one legal step after the other, through the log; each replica
// that has applied it has the configuration, a snapshot brings it, and after a crash it is that of
// what is applied.
func TestReplicasOfAPartitionChange(t *testing.T) {
	c := newTestCluster(t, 3, config.Limits{})
	defer c.close()
	c.elect(c.members[0])
	c.auto = true
	c.members[0].commit(-1)
	c.members[0].catchUp(-1)
	c.settle()
	leader := c.members[0].replica
	ctx := context.Background()
	step := func(roles map[uint64]clusterpb.ReplicaRole) error {
		t.Helper()
		err := leader.Reshape().ChangeDescriptor(ctx, change(leader.Descriptor(), roles))
		c.settle()
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, and not: %s", err, what)
		}
	}
	before := leader.Configuration()
	refused("is no incoming voter yet",
		step(map[uint64]clusterpb.ReplicaRole{4: clusterpb.ReplicaRole_VOTER}))
	refused("leaves by a joint configuration", step(map[uint64]clusterpb.ReplicaRole{3: -1}))
	refused("has to hand over before", step(map[uint64]clusterpb.ReplicaRole{
		1: clusterpb.ReplicaRole_OUTGOING}))
	if now := leader.Configuration(); !now.Equal(&before) {
		t.Fatalf("it was refused, and the configuration is %s", &now)
	}

	if err := step(map[uint64]clusterpb.ReplicaRole{4: clusterpb.ReplicaRole_LEARNER}); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.members {
		m.catchUp(-1)
		if now := m.replica.Configuration(); now.Role(4) != group.Learner || !now.Changed {
			t.Errorf("replica %s has %s", m.id, &now)
		}
	}

	// The newcomer knows of no replicas, and what a snapshot brings is of the same moment as the
	// data.
	fs := vfs.NewCrashableMem()
	state, err := engine.OpenState(engine.Options{FS: fs, Dir: "new", CacheBytes: 1 << 20,
		MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	newcomer := &member{cluster: c, id: 4, fs: fs, dir: "new", state: state, node: c.members[0].node}
	newcomer.replica, err = New(Config{Partition: leader.Descriptor(), Empty: true, ReplicaID: 4,
		State: state, Group: newcomer, Node: newcomer.node})
	if err != nil {
		t.Fatal(err)
	}
	defer newcomer.replica.Close()
	if now := newcomer.replica.Configuration(); !now.Empty() {
		t.Errorf("a newcomer has the configuration %s", &now)
	}
	if err := transfer(c.members[0], newcomer); err != nil {
		t.Fatal(err)
	}
	if now, want := newcomer.replica.Configuration(), leader.Configuration(); !now.Equal(&want) {
		t.Errorf("the snapshot has brought %s", &now)
	}

	if err := step(map[uint64]clusterpb.ReplicaRole{4: clusterpb.ReplicaRole_INCOMING,
		3: clusterpb.ReplicaRole_OUTGOING}); err != nil {
		t.Fatal(err)
	}
	refused("is joint", step(map[uint64]clusterpb.ReplicaRole{5: clusterpb.ReplicaRole_LEARNER}))
	if err := step(map[uint64]clusterpb.ReplicaRole{4: clusterpb.ReplicaRole_VOTER,
		3: -1}); err != nil {
		t.Fatal(err)
	}
	refused("replica r3 was removed before", step(map[uint64]clusterpb.ReplicaRole{
		3: clusterpb.ReplicaRole_LEARNER}))

	// After a crash the configuration is that of the applied index, whatever the log has.
	follower := c.members[1]
	follower.catchUp(-1)
	crashed := follower.fs.CrashClone(vfs.CrashCloneCfg{})
	follower.close()
	follower.fs = crashed
	follower.open(3)
	index, _ := follower.replica.Applied()
	now := follower.replica.Configuration()
	if index == 0 && now.Changed {
		t.Errorf("nothing is applied, and the configuration is %s", &now)
	}
	follower.catchUp(-1)
	if now, want := follower.replica.Configuration(), leader.Configuration(); !now.Equal(&want) {
		t.Errorf("it was applied again, and the configuration is %s", &now)
	}
}

// TestReplicasGrowAndShrink: from one replica to three and back, from three to five and back, the
// leader among those that go, all without another one in exchange. Each step is legal by itself.
func TestReplicasGrowAndShrink(t *testing.T) {
	const voter, learner, incoming, outgoing, gone = clusterpb.ReplicaRole_VOTER,
		clusterpb.ReplicaRole_LEARNER, clusterpb.ReplicaRole_INCOMING, clusterpb.ReplicaRole_OUTGOING,
		clusterpb.ReplicaRole(-1)
	type roles = map[uint64]clusterpb.ReplicaRole
	for _, c := range []struct {
		from  int
		steps []roles
		// then leads from there on.
		then  int
		after []roles
		left  []uint64
	}{
		{from: 1, steps: []roles{{2: learner}, {2: incoming}, {2: voter}, {3: learner}, {3: incoming},
			{3: voter}, {2: outgoing}, {2: gone}, {3: outgoing}, {3: gone}}, left: []uint64{1}},
		{from: 1, steps: []roles{{2: learner}, {3: learner}, {2: incoming, 3: incoming},
			{2: voter, 3: voter}, {2: outgoing, 3: outgoing}, {2: gone, 3: gone}}, left: []uint64{1}},
		{from: 3, steps: []roles{{4: learner}, {4: incoming}, {4: voter}, {5: learner}, {5: incoming},
			{5: voter}, {4: outgoing, 3: outgoing}, {4: gone, 3: gone}}, left: []uint64{1, 2, 5}},
		{from: 3, steps: []roles{{3: outgoing}, {3: gone}}, then: 2,
			after: []roles{{1: outgoing}, {1: gone}}, left: []uint64{2}},
		{from: 3, steps: []roles{{4: learner}, {4: incoming}, {4: voter}, {5: learner}, {5: incoming},
			{5: voter}}, then: 3, after: []roles{{1: outgoing}, {1: gone}, {5: outgoing}, {5: gone}},
			left: []uint64{2, 3, 4}},
	} {
		t.Run(fmt.Sprintf("%d to %d", c.from, len(c.left)),
			func(t *testing.T) {
				cluster := newTestCluster(t, c.from, config.Limits{})
				defer cluster.close()
				lead := func(m *member) *Replica {
					cluster.auto = false
					cluster.elect(m)
					cluster.auto = true
					m.commit(-1)
					m.catchUp(-1)
					cluster.settle()
					return m.replica
				}
				leader := lead(cluster.members[0])
				play := func(steps []roles) {
					t.Helper()
					for _, step := range steps {
						err := leader.Reshape().ChangeDescriptor(context.Background(), change(leader.Descriptor(),
							step))
						cluster.settle()
						if err != nil {
							t.Fatalf("%v: %v", step, err)
						}
					}
				}
				play(c.steps)
				if c.then > 0 {
					for _, step := range c.after[:1] { // the one that leads is not voted out
						err := leader.Reshape().ChangeDescriptor(context.Background(), change(leader.Descriptor(),
							step))
						if err == nil || !strings.Contains(err.Error(), "has to hand over before") {
							t.Errorf("the leader's own end: %v", err)
						}
					}
					cluster.members[c.then-1].catchUp(-1)
					leader = lead(cluster.members[c.then-1])
					play(c.after)
				}
				var left []uint64
				members := leader.Configuration()
				for _, m := range members.Members {
					if m.Role != group.Voter {
						t.Errorf("replica %s is a %s", m.Replica, m.Role)
					}
					left = append(left, uint64(m.Replica))
				}
				if !slices.Equal(left, c.left) {
					t.Errorf("%v are left, not %v", left, c.left)
				}
			})
	}
}
