package forward

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// silentMost is the time for which calls may wait at a member in vain before another one is
// preferred. If a member is disconnected from the others, or its log hangs, calls wait there for
// longer than most clients do.
const silentMost = time.Second

// members has the member that is asked first, and the record of each member.
type members struct {
	mu sync.Mutex
	// preferred is the address of the member that is asked first. It is "" if there is none.
	preferred string
	records   map[string]record
}

// record says how a member has answered. The zero value is for a member that was never asked.
type record struct {
	// serving is set if the member has answered, and has not failed since. Before a stream is opened
	// at a member without serving, the member is asked whether it serves.
	serving bool
	// answered is the time of the member's last answer.
	answered time.Time
	// silent is the time at which the first of the calls began that have waited in vain since the
	// member's last answer. It is zero if there is none.
	silent time.Time
}

// order puts the preferred member first. The others keep their order around it, as in a ring. If no
// member is preferred, a random one comes first.
func (m *members) order(all []string, random func() uint64) []string {
	if len(all) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.records, func(address string, _ record) bool {
		return !slices.Contains(all, address)
	})
	first := slices.Index(all, m.preferred)
	if first < 0 {
		first = int(random() % uint64(len(all)))
		m.preferred = all[first]
	}
	return slices.Concat(all[first:], all[:first])
}

// ended records how a call to a member has ended. began is the time at which the call began.
func (m *members) ended(address string, all []string, of *method, began time.Time, err error) {
	switch status.Code(err) {
	case codes.Unavailable:
		m.failed(address, all)
	case codes.DeadlineExceeded, codes.Canceled:
		m.inVain(address, all, of, began)
	default:
		m.answered(address)
	}
}

// answered records that a member has answered. It does not change which member is asked first: the
// call may have begun before another call found that the member does not serve.
func (m *members) answered(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(address, record{serving: true, answered: time.Now()})
}

// failed records that a member has not answered. If the member was preferred, the next one is
// preferred from now on.
func (m *members) failed(address string, all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failedLocked(address, all)
}

func (m *members) failedLocked(address string, all []string) {
	m.setLocked(address, record{answered: m.records[address].answered})
	if i := slices.Index(all, address); i >= 0 && m.preferred == address {
		m.preferred = all[(i+1)%len(all)]
	}
}

// inVain records that a call, which began at a time, has waited at a member until its client gave
// up. The member has failed if calls have waited there for silentMost, be it one call or several
// short ones. A call that may wait for other clients counts only if the member has not answered any
// call meanwhile.
func (m *members) inVain(address string, all []string, of *method, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[address]
	if of.waits && r.answered.After(began) {
		return
	}
	if r.silent.IsZero() || began.Before(r.silent) {
		r.silent = began
	}
	m.setLocked(address, r)
	if time.Since(r.silent) >= silentMost {
		m.failedLocked(address, all)
	}
}

func (m *members) setLocked(address string, r record) {
	if m.records == nil {
		m.records = make(map[string]record)
	}
	m.records[address] = r
}

func (m *members) serves(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[address].serving
}
