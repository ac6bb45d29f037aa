package peers

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A host that has no replica of a group cannot lead it, however willing it is.
func TestWillingIsWhoHasAReplica(t *testing.T) {
	var p Peers
	p.Init()
	for host := range uint64(5) {
		if host != 1 { // which is this one
			p.Add(host)
			p.Heard(host, 1, 1)
		}
	}
	members := group.Founded(map[keys.ReplicaID]uint64{1: 1, 2: 2, 3: 3})
	of := &members
	if !p.Willing(of) {
		t.Error("two others would lead, and it is said that none would")
	}
	p.NoteStatus(2, &peerpb.HostPing{Averse: true})
	if !p.Willing(of) {
		t.Error("one other would lead, and it is said that none would")
	}
	p.Heard(0, 1, int64(time.Hour))
	p.Heard(4, 1, int64(time.Hour))
	p.NewlySilent(int64(time.Hour), int64(time.Second))
	if p.Willing(of) {
		t.Error("one other is leader-averse and one is silent, and it is said that one would lead")
	}
	if p.Heard(3, 1, int64(time.Hour)); !p.Willing(of) {
		t.Error("one other is back, and it is said that none would lead")
	}
	members.Members[2].Role = group.Learner
	if p.Willing(of) {
		t.Error("the other one that is there is a learner, and it is said that it would lead")
	}
	alone := group.Founded(map[keys.ReplicaID]uint64{1: 1})
	if p.Willing(&alone) {
		t.Error("there is no other replica, and it is said that another one would lead")
	}
}

// A ping that was made before another one, and arrives after it, takes nothing back.
func TestPingsInAnotherOrder(t *testing.T) {
	var p Peers
	p.Init()
	p.Add(2)
	for i, x := range []struct {
		ping   *peerpb.HostPing
		averse bool
	}{
		{&peerpb.HostPing{Incarnation: 9, Number: 5, Averse: true}, true},
		{&peerpb.HostPing{Incarnation: 9, Number: 4}, true},
		{&peerpb.HostPing{Incarnation: 9, Number: 6}, false},
		{&peerpb.HostPing{Incarnation: 9, Number: 5, Averse: true}, false},
		{&peerpb.HostPing{Incarnation: 10, Number: 1, Averse: true}, true},
	} {
		p.NoteStatus(2, x.ping)
		if _, _, c := p.Status(2); c.Averse != x.averse {
			t.Errorf("after ping %d the host is averse: %t", i, c.Averse)
		}
	}
}
