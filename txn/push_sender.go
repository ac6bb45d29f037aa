package txn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

var (
	// ErrPushersBusy is the error of a push while InFlight other pushes are running. Nothing was
	// sent.
	ErrPushersBusy = errors.New("too many questions to coordinators of transactions are on their way")
	// ErrPusherClosed is the error of pushes after their PushSender was closed.
	ErrPusherClosed = errors.New("this server is stopping")
)

// Sender is what a PushSender needs of a route.Sender.
type Sender interface {
	// AwaitTable waits for the partition table.
	AwaitTable(ctx context.Context) (*route.Table, error)
	// Subscribe has the table soon include the partitions of a keyspace.
	Subscribe(k *route.Keyspace)
	// Do sends a request to the leader of its partition.
	Do(ctx context.Context, call *route.Call) (route.Answer, error)
	// Close ends all requests.
	Close()
}

// PushSenderConfig configures a PushSender. Open is required.
type PushSenderConfig struct {
	// Open makes the Sender at the first push, so a node without transactions needs no Sender.
	// After an error the next push tries again. Close closes the Sender.
	Open func() (Sender, error)
	// InFlight bounds the pushes that run at a time. Default 256.
	InFlight int
	// Timeout bounds the time of a push, including the commit wait of the pushee. Default 2 s: a
	// request that waits for a transaction asks again.
	Timeout time.Duration
}

// PushSender is a Pusher that sends pushes to the leaders of the coordinating partitions, and a
// Resolver. Its errors are the route.Sender's (*route.Error, with the coordinator's code if it has
// answered), ErrPushersBusy, ErrPusherClosed and ErrCoordinatorGone.
//
// Every push on its way has a goroutine, which ends at the push's deadline at the latest. Even
// equal pushes do not share a request: PENDING must be true of a moment after the push was called
// for (see Pusher), and an earlier request may have been answered before.
type PushSender struct {
	config PushSenderConfig
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	running sync.WaitGroup // begun under mu, and not once closed

	// resting belongs to Resolve; tests replace partitions and dropped.
	resting    resting
	partitions func(*route.Table, area) (over []*route.Partition, covered bool)
	dropped    func(*route.Table, keys.KeyspaceID) bool

	mu struct {
		sync.Mutex
		closed bool
		sender Sender // nil until the first push
		// inFlight counts the pushes that are running.
		inFlight int
	}
}

// NewPushSender makes a PushSender. The caller closes the PushSender after use.
func NewPushSender(c PushSenderConfig) *PushSender {
	if c.InFlight <= 0 {
		c.InFlight = 256
	}
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Second
	}
	s := &PushSender{config: c, partitions: partitions, dropped: (*route.Table).Dropped}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Push implements Pusher.
func (s *PushSender) Push(q *kvpb.PushRequest, done func(*kvpb.TransactionStatus, error)) {
	info, err := ParseInfo(q.GetPushee())
	if err == nil {
		err = s.push(q, info, done)
	}
	if err != nil {
		done(nil, err)
	}
}

// push starts a push. If it returns an error, nothing was sent, and done is not called.
func (s *PushSender) push(q *kvpb.PushRequest, info Info,
	done func(*kvpb.TransactionStatus, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return ErrPusherClosed
	case s.mu.inFlight >= s.config.InFlight:
		return ErrPushersBusy
	}
	if err := s.openLocked(); err != nil {
		return fmt.Errorf("push of transaction %s: %w", info.ID, err)
	}
	s.mu.inFlight++
	sender := s.mu.sender
	s.running.Go(func() {
		status, err := s.ask(sender, q, info)
		s.mu.Lock()
		s.mu.inFlight--
		if err != nil && s.mu.closed {
			err = ErrPusherClosed
		}
		s.mu.Unlock()
		done(status, err)
	})
	return nil
}

// openLocked opens the Sender, unless it is open.
func (s *PushSender) openLocked() error {
	if s.mu.sender != nil {
		return nil
	}
	sender, err := s.config.Open()
	if err == nil {
		s.mu.sender = sender
	}
	return err
}

// open returns the Sender, which is valid until running.Done is called.
func (s *PushSender) open() (Sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, ErrPusherClosed
	}
	if err := s.openLocked(); err != nil {
		return nil, err
	}
	s.running.Add(1)
	return s.mu.sender, nil
}

// ask sends one push.
func (s *PushSender) ask(sender Sender, q *kvpb.PushRequest,
	info Info) (*kvpb.TransactionStatus, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.config.Timeout)
	defer cancel()
	// A new Sender's table has no partitions of the keyspace yet.
	table, err := sender.AwaitTable(ctx)
	if err != nil {
		return nil, fmt.Errorf("push of transaction %s: %w", info.ID, err)
	}
	if s.dropped(table, info.Keyspace) {
		return nil, fmt.Errorf("push of transaction %s (keyspace %d): %w", info.ID, info.Keyspace,
			ErrCoordinatorGone)
	}
	answer, err := sender.Do(ctx, &route.Call{
		Keyspace: info.Keyspace, Key: info.Anchor, Write: true,
		Request: &kvpb.Request{Command: &kvpb.Request_Push{Push: q}},
	})
	if err != nil {
		return nil, fmt.Errorf("push of transaction %s (anchor %s): %w", info.ID,
			keys.Pretty(info.Anchor), err)
	}
	status := answer.GetPush().GetStatus()
	if status == nil {
		return nil, fmt.Errorf("push of transaction %s: node %s answered without a status", info.ID,
			answer.Node)
	}
	return status, nil
}

// Close ends all pushes, with ErrPusherClosed, and waits until every caller has its answer. It may
// be called more than once.
func (s *PushSender) Close() {
	s.mu.Lock()
	first := !s.mu.closed
	s.mu.closed = true
	sender := s.mu.sender
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
	if first && sender != nil {
		sender.Close()
	}
}
