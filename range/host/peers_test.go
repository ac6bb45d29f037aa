package host

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A host that has no replica of a group cannot lead it, however willing it is.
func TestWillingIsWhoHasAReplica(t *testing.T) {
	var p peers
	p.init()
	for host := range uint64(5) {
		if host != 1 { // which is this one
			p.add(host)
			p.heard(host, 1, 1)
		}
	}
	group := map[keys.ReplicaID]uint64{1: 1, 2: 2, 3: 3}
	if !p.willing(group) {
		t.Error("two others would lead, and it is said that none would")
	}
	p.said(2, condition{averse: true})
	if !p.willing(group) {
		t.Error("one other would lead, and it is said that none would")
	}
	p.heard(0, 1, int64(time.Hour))
	p.heard(4, 1, int64(time.Hour))
	p.silent(int64(time.Hour), int64(time.Second))
	if p.willing(group) {
		t.Error("one other is leader-averse and one is silent, and it is said that one would lead")
	}
	if p.heard(3, 1, int64(time.Hour)); !p.willing(group) {
		t.Error("one other is back, and it is said that none would lead")
	}
	if p.willing(map[keys.ReplicaID]uint64{1: 1}) {
		t.Error("there is no other replica, and it is said that another one would lead")
	}
}
