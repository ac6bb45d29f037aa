package rpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// maxKeptNeeds bounds for how many needs a stream keeps room.
const maxKeptNeeds = 1 << 10

// judgedFor is for how long a request that was judged may wait before it is carried out. It is what
// a server may be behind with users and roles, and no less than what clients ask for.
const judgedFor = 10 * time.Second

var errTokenTooLong = status.Error(codes.InvalidArgument,
	fmt.Sprintf("a token has at most %d bytes", wire.MaxTokenBytes))

// judge asks the guard about the requests of one stream. A nil judge permits everything.
//
// INVARIANT: a request that was refused reaches neither Handle nor Take. One that was permitted is
// judged again when it is answered, or waits for at most judgedFor before it is carried out. The
// answer to a request that needs no right tells nothing of keys (withoutKeys).
type judge struct {
	guard access.Guard
	// judged and needs are those of the configuration.
	judged  func(*kvpb.Request) (judged, lasting bool, refusal *kvpb.Error)
	needs   func(*kvpb.Request, []access.Need) ([]access.Need, *kvpb.Error)
	refused map[access.Reason]*metric.Counter
	// identity is that of the stream's client at present.
	identity atomic.Pointer[identified]
	// room is for the needs of one request. Of the goroutine that reads.
	room []access.Need

	// open has, by id, the requests whose answers are looked at: those that are judged once more when
	// they are answered, and those that were not judged. standing is their number.
	standing atomic.Int32
	mu       sync.Mutex
	open     map[uint64]openRequest // guarded by mu
}

// openRequest is a request whose answer is looked at.
type openRequest struct {
	// unjudged: it needs no right. Otherwise needs are what it needs.
	unjudged bool
	needs    []access.Need
}

// identified is what a stream has shown, and the client that this identifies, which is looked up
// when it is first needed.
type identified struct {
	shown  access.Shown
	once   sync.Once
	client access.Client
}

func newJudge(c *BatchServerConfig, m *batchMetrics, from origin, token string) *judge {
	j := &judge{guard: c.Guard, judged: c.Judged, needs: c.Needs, refused: m.refused}
	shown := access.Shown{Token: strings.Clone(token), Address: from.address}
	if c.CertificateUsers {
		shown.CertificateName = from.certificateName
	}
	j.identity.Store(&identified{shown: shown})
	return j
}

// show replaces the token; it does nothing without one. It is for the goroutine that reads.
func (j *judge) show(token string) error {
	if len(token) > wire.MaxTokenBytes {
		return errTokenTooLong
	}
	if j == nil || token == "" {
		return nil
	}
	// The token aliases the message that brought it.
	shown := j.identity.Load().shown
	shown.Token = strings.Clone(token)
	j.identity.Store(&identified{shown: shown})
	return nil
}

// client returns the stream's client.
func (j *judge) client() access.Client {
	identity := j.identity.Load()
	identity.once.Do(func() { identity.client = j.guard.Client(identity.shown) })
	return identity.client
}

// may asks the guard; nil if the client has all that is needed.
func (j *judge) may(needs []access.Need) *kvpb.Error { return j.toError(j.client().May(needs)) }

// toError is an error of the guard as the client is told it; nil if it is nil.
func (j *judge) toError(err error) *kvpb.Error {
	if err == nil {
		return nil
	}
	// What cannot say why cannot say whether.
	reason, code := access.Unknown, kvpb.ErrorCode_ACCESS_UNKNOWN
	var e *access.Error
	if errors.As(err, &e) {
		switch e.Reason {
		case access.Unauthenticated:
			reason, code = e.Reason, kvpb.ErrorCode_UNAUTHENTICATED
		case access.Denied:
			reason, code = e.Reason, kvpb.ErrorCode_PERMISSION_DENIED
		}
	}
	j.refused[reason].Inc()
	return &kvpb.Error{Code: code, Message: err.Error()}
}

// refusal is the answer to a request that the client may not make; nil if it may. It is for the
// goroutine that reads.
func (j *judge) refusal(q *kvpb.Request) *kvpb.Response {
	if !j.guard.Enabled() {
		return nil
	}
	judged, lasting, refusal := j.judged(q)
	switch {
	case refusal != nil:
	case judged:
		refusal = j.judge(q, lasting)
	default:
		j.keep(q.Id, openRequest{unjudged: true})
	}
	if refusal != nil {
		return &kvpb.Response{Id: q.Id, Error: refusal}
	}
	return nil
}

// judge says why the client may not make a request; nil if it may. For a client that may do
// nothing, or everything, no needs are listed.
func (j *judge) judge(q *kvpb.Request, lasting bool) (refusal *kvpb.Error) {
	free, err := j.client().Standing()
	if err != nil {
		return j.toError(err)
	}
	if !free || lasting {
		needs, refusal := j.needs(q, j.room[:0])
		defer j.keepRoom(needs)
		switch {
		case refusal == nil && !free:
			refusal = j.may(needs)
		case refusal != nil && !free:
			refusal = withoutKeys(refusal)
		}
		if refusal != nil {
			return refusal
		}
		if lasting {
			j.keep(q.Id, openRequest{needs: slices.Clone(needs)})
		}
	}
	if most := uint64(judgedFor.Microseconds()); !lasting &&
		(q.TimeoutMicros == 0 || q.TimeoutMicros > most) {
		q.TimeoutMicros = most
	}
	return nil
}

// keepRoom keeps the room of needs, which alias a request, for the next.
func (j *judge) keepRoom(needs []access.Need) {
	clear(needs)
	if cap(needs) <= maxKeptNeeds {
		j.room = needs[:0]
	}
}

// keep has the answer to a request looked at.
func (j *judge) keep(id uint64, q openRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.open == nil {
		j.open = make(map[uint64]openRequest)
	}
	if _, twice := j.open[id]; !twice {
		j.standing.Add(1)
	}
	j.open[id] = q
}

// again looks at an answer, judges the request again if keep was told to, and returns the answer
// that the client gets. Any goroutine may call it.
func (j *judge) again(r *kvpb.Response) *kvpb.Response {
	q, ok := j.kept(r.Id)
	if !ok && (r.Error != nil || r.GetChanges() == nil) || !j.guard.Enabled() {
		return r
	}
	refusal := errBeforeUsers
	switch {
	case ok && q.unjudged && r.Error == nil:
		return r
	case ok && q.unjudged:
		if free, err := j.client().Standing(); free && err == nil {
			return r
		}
		refusal = withoutKeys(r.Error)
	case ok:
		if refusal = j.may(q.needs); refusal == nil {
			return r
		}
	}
	return &kvpb.Response{Id: r.Id, Now: r.Now, ClockUntrusted: r.ClockUntrusted, Error: refusal}
}

// withoutKeys is an error as a client is told it that may not be shown keys: neither bounds of
// partitions nor what has failed, whose text can have keys.
func withoutKeys(e *kvpb.Error) *kvpb.Error {
	told := &kvpb.Error{Code: e.Code, Message: e.Message, Leader: e.Leader, Cause: e.Cause}
	switch e.Code {
	case kvpb.ErrorCode_NOT_LEADER, kvpb.ErrorCode_NO_QUORUM, kvpb.ErrorCode_PARTITION_NOT_FOUND,
		kvpb.ErrorCode_STALE_EPOCH, kvpb.ErrorCode_OVERLOADED, kvpb.ErrorCode_CLOCK_SKEW:
		// They name partitions and nodes only.
	default:
		told.Message = "the request is refused (" + e.Code.String() + "); why is not shown to who may " +
			"not read the keyspace"
	}
	return told
}

// errBeforeUsers is the answer to a request that came while no client was judged, and was held.
var errBeforeUsers = &kvpb.Error{Code: kvpb.ErrorCode_ACCESS_UNKNOWN, Message: "authentication " +
	"was enabled while the server held the request, so it was not judged: ask again"}

// kept takes out a request whose answer is looked at; false: nothing was said of the request.
func (j *judge) kept(id uint64) (openRequest, bool) {
	if j.standing.Load() == 0 {
		return openRequest{}, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	q, ok := j.open[id]
	if ok {
		delete(j.open, id)
		j.standing.Add(-1)
	}
	return q, ok
}
