package replica

import (
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Reads by admission in the random histories: a leader is asked to admit them, and some time later
// any replica is asked for the data.

// admittedRead is a read that a leader has admitted.
type admittedRead struct {
	client    int
	request   *kvpb.Request
	admission *kvpb.Admission
	answered  func(*kvpb.Response)
}

// mostAdmitted is how many of them are kept.
const mostAdmitted = 8

// sendRead sends a read, or asks for it to be admitted: then it is read later (follow). What was
// known when it was called is known in either case.
func (h *history) sendRead(t *rapid.T, m *member, client int, q *kvpb.Request,
	answered func(*kvpb.Response)) {
	if rapid.IntRange(0, 2).Draw(t, "admit") > 0 {
		h.send(m, client, q, answered)
		return
	}
	asked := proto.Clone(q).(*kvpb.Request)
	asked.Admit = true
	h.send(m, client, asked, func(response *kvpb.Response) {
		if response.Error != nil {
			return
		}
		if response.Admission == nil || response.Result != nil {
			h.fault("%v was answered %v, which is no admission", asked, response)
			return
		}
		if len(h.admitted) == mostAdmitted {
			h.admitted = h.admitted[1:]
		}
		h.admitted = append(h.admitted, admittedRead{client, q, response.Admission, answered})
	})
}

// follow has a replica read what was admitted, whichever replica leads by now; it may do so again.
func (h *history) follow(t *rapid.T) {
	if len(h.admitted) == 0 {
		t.Skip("none")
	}
	a := rapid.SampledFrom(h.admitted).Draw(t, "admitted")
	q := proto.Clone(a.request).(*kvpb.Request)
	q.ReplicaRead = &kvpb.ReplicaRead{Admission: a.admission,
		WaitMicros: rapid.SampledFrom([]uint32{0, 1e6}).Draw(t, "wait")}
	h.send(h.draw(t, "member"), a.client, q, a.answered)
}
