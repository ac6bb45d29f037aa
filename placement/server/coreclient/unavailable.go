package coreclient

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// ErrUnavailable matches an UnavailableError.
var ErrUnavailable = errors.New("the core is unavailable")

// ErrNoMember is the answer, a status, of a server that was asked as a member of the core and is
// not a member.
var ErrNoMember = status.Error(codes.Unavailable,
	"this server is not a member of the core; check the --core list of the server that asks")

// UnavailableError means that no leader of the core answered in time.
type UnavailableError struct {
	// Core lists all members.
	Core []string
	// Reachable are the members that answered. Silent are the members that did not answer, and Reasons
	// say why, in the order of Silent. A member in neither list was not asked recently.
	Reachable, Silent []string
	Reasons           []error
	// Leaderless is set if a member that answered knows no leader.
	Leaderless bool
	// Last is the last error that is not a refusal of a member that does not lead. Cause is the reason
	// why the call ended.
	Last, Cause error
}

// NoQuorum reports whether too few members can reach one another: a majority is silent, or the
// members that answer have no leader.
func (e *UnavailableError) NoQuorum() bool {
	return len(e.Core) > 0 && (e.Leaderless || 2*len(e.Silent) >= len(e.Core))
}

func (e *UnavailableError) Error() string {
	n, all := len(e.Reachable), len(e.Core)
	answer := fmt.Sprintf("%d of %d members answer", n, all)
	if n > 0 {
		answer += " (" + strings.Join(e.Reachable, ", ") + ")"
	}
	var text string
	switch {
	case all == 0:
		return "the core is not known: the list of its members is empty"
	case 2*len(e.Silent) >= all:
		text = "the core has no quorum: " + answer
	case e.Leaderless:
		text = "the core has no leader: " + answer + " and know of none"
	case e.Last != nil && len(e.Silent) == 0:
		return "the core cannot do it at present: " + e.Last.Error()
	case n == 0:
		text = "the core has not answered in time: none of " + strings.Join(e.Core, ", ")
	default:
		text = "no leader of the core answers, though " + answer
	}
	for i, address := range e.Silent {
		separator := "; "
		if i > 0 {
			separator = ", "
		}
		text += fmt.Sprintf("%s%s does not (%s)", separator, address, wire.Reason(e.Reasons[i]))
	}
	return text
}

// Is makes errors.Is(err, ErrUnavailable) true.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the reason why the call ended: the context's error.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Trouble returns the error as a message.
func (e *UnavailableError) Trouble() *clusterpb.CoreTrouble {
	return &clusterpb.CoreTrouble{NoQuorum: e.NoQuorum(), Silent: e.Silent}
}

// GRPCStatus gives the error a code that tells the client to retry.
func (e *UnavailableError) GRPCStatus() *status.Status {
	st := status.New(codes.Unavailable, e.Error())
	if detailed, err := st.WithDetails(e.Trouble()); err == nil {
		st = detailed
	}
	return st
}

// wordAge is the time for which a member's last answer, or its silence, is used by calls that had
// no time to ask the member.
const wordAge = 10 * time.Second

// word is the last answer of a member.
type word struct {
	// silent is the reason why there was no answer. It is nil if there was an answer.
	silent error
	// leaderless is set if the member does not lead and knows no leader.
	leaderless bool
	at         time.Time
}

// words has the latest word of each member. All calls of a Client share it.
type words struct {
	// unreachable returns the reason why a member that was not asked recently does not answer. It
	// returns nil if no reason is known.
	unreachable func(address string) error

	mu  sync.Mutex
	all map[string]word
}

func (w *words) heard(address string, leaderless bool) {
	w.note(address, word{leaderless: leaderless, at: time.Now()})
}

func (w *words) silent(address string, why error) {
	w.note(address, word{silent: why, at: time.Now()})
}

func (w *words) note(address string, said word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[string]word)
	}
	w.all[address] = said
}

// known returns the reason from unreachable, if there is one.
func (w *words) known(address string) error {
	if w.unreachable == nil {
		return nil
	}
	return w.unreachable(address)
}

// trouble makes an error of the words and the last error of a call.
func (w *words) trouble(core []string, last, cause error) *UnavailableError {
	e := &UnavailableError{Core: core, Last: last, Cause: cause}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range core {
		said, ok := w.all[address]
		switch {
		case !ok || time.Since(said.at) > wordAge:
			if why := w.known(address); why != nil {
				e.Silent, e.Reasons = append(e.Silent, address), append(e.Reasons, why)
			}
		case said.silent != nil:
			e.Silent, e.Reasons = append(e.Silent, address), append(e.Reasons, said.silent)
		default:
			e.Reachable = append(e.Reachable, address)
			e.Leaderless = e.Leaderless || said.leaderless
		}
	}
	return e
}
