package route

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// The client's user.
//
// A token says it, and ends after some minutes. The sender gets one before its first stream, and
// another one every tokenAge, which it shows on the streams that are open, that of the partition
// table too; besides when a server has refused a request because it knows no user by what was
// shown. A call that needs one meanwhile waits for the same call. Where no token can be had,
// requests go without, and the servers judge: while authentication is not enabled they ask for
// none, whether the core answers or not.

const (
	// tokenAge is the time between two tokens. One is good for 5 minutes.
	tokenAge = 2 * time.Minute
	// tokenTimeout bounds the call for one. tokenPatience is how long a new stream waits for it, and
	// tablePatience how long a new stream of the table does, which can be shown it later.
	tokenTimeout  = 10 * time.Second
	tokenPatience = 3 * time.Second
	tablePatience = time.Second
	// tokenAgain is the time between two calls while there is no token because no server answers, and
	// after one that was refused.
	tokenAgain = 5 * time.Second
)

// identity is what is known of the client's user. One without a source names none.
type identity struct {
	source func(context.Context) (string, error)
	// latest is nil before the first token. New streams show the latest token.
	latest atomic.Pointer[token]
	// shown is the number of the latest token that every open stream to a node has been shown.
	shown atomic.Uint64
	// news has the table stream show another token. Capacity 1.
	news chan struct{}

	mu sync.Mutex
	// err is why the latest call gave none; tried: one has ended, at the time ended.
	err   error
	tried bool
	ended time.Time
	// getting is closed when the call under way is over; nil if there is none.
	getting chan struct{}
}

// token is one that was got; number counts them from 1, also the empty ones.
type token struct {
	text   string
	number uint64
}

// known is the latest token and its number; "" and 0 if there was none.
func (i *identity) known() (text string, number uint64) {
	if t := i.latest.Load(); t != nil {
		return t.text, t.number
	}
	return "", 0
}

// awaitToken returns the latest token, and waits for the first one. Its error is why there is none.
func (s *Sender) awaitToken(ctx context.Context) (text string, number uint64, err error) {
	text, number = s.identity.known()
	if s.identity.source == nil || number > 0 {
		return text, number, nil
	}
	if err := s.renewToken(ctx, 0); err != nil {
		return "", 0, err
	}
	text, number = s.identity.known()
	return text, number, nil
}

// AwaitIdentity waits, for a moment, until the client's identity is known. Its error is that there
// will be no token: the password is wrong. That no server answers is none.
func (s *Sender) AwaitIdentity(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	_, _, err := s.awaitToken(ctx)
	if err == nil || ctx.Err() != nil || passing(err) {
		return nil
	}
	return &Error{Code: kvpb.ErrorCode_UNAUTHENTICATED, Message: wire.Reason(err)}
}

// tokenForStream is the token for a stream that is opened. It waits until the first call for one
// has ended; the stream goes without if there is none.
func (s *Sender) tokenForStream(ctx context.Context) string {
	text, number := s.identity.known()
	if number > 0 {
		return text
	}
	s.identity.mu.Lock()
	tried := s.identity.tried
	s.identity.mu.Unlock()
	if tried {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	text, _, _ = s.awaitToken(ctx)
	return text
}

// renewToken waits until every open stream has been shown a token that is newer than the token of a
// number. A refusal stands for a while: each login with a wrong password costs the core as much as
// one with the right password.
func (s *Sender) renewToken(ctx context.Context, than uint64) error {
	i := &s.identity
	for {
		i.mu.Lock()
		if i.shown.Load() > than {
			i.mu.Unlock()
			return nil
		}
		if i.getting == nil {
			if i.err != nil && !passing(i.err) && time.Since(i.ended) < tokenAgain {
				defer i.mu.Unlock()
				return i.err
			}
			i.getting = make(chan struct{})
			if !s.spawn(s.getToken) {
				close(i.getting)
				i.getting = nil
				i.mu.Unlock()
				return ErrClosed
			}
		}
		over := i.getting
		i.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return ErrClosed
		}
		i.mu.Lock()
		err := i.err
		i.mu.Unlock()
		if err != nil && i.shown.Load() <= than {
			return err
		}
		// A call that was under way may have brought the very token that is not to be used.
	}
}

// getToken makes the one call that is under way, and shows the token on the open streams.
//
// INVARIANT: new streams use a token before the open streams are shown the token, and no caller is
// told of the token before all of them are: a stream that shows an older token would refuse the
// next attempt of the caller.
func (s *Sender) getToken() {
	i := &s.identity
	ctx, cancel := context.WithTimeout(s.ctx, tokenTimeout)
	text, err := i.source(ctx)
	cancel()
	_, number := i.known()
	if err == nil {
		number++
		i.latest.Store(&token{text, number})
		select {
		case i.news <- struct{}{}:
		default:
		}
		for _, n := range *s.nodes.Load() {
			for _, l := range n.lanes {
				if c := l.conn.Load(); c != nil {
					if err := c.Show(text); err != nil {
						s.log.Debug("token not shown", "node", n.id, "error", err)
					}
				}
			}
		}
	} else {
		s.log.Warn("no token for the client's user", "error", err)
	}
	i.mu.Lock()
	i.err, i.tried, i.ended = err, true, time.Now()
	i.shown.Store(number)
	close(i.getting)
	i.getting = nil
	i.mu.Unlock()
}

// keepToken gets tokens until the Sender closes.
func (s *Sender) keepToken() {
	for {
		wait := tokenAge
		if err := s.renewToken(s.ctx, s.identity.shown.Load()); err != nil {
			wait = tokenAgain
		}
		if s.pause(s.ctx, wait) != nil {
			return
		}
	}
}

// withToken makes a call of a service with the token in its metadata, and once more with a new one
// if the server does not know the client by it.
func (s *Sender) withToken(ctx context.Context, call func(context.Context) error) error {
	if s.identity.source == nil {
		return call(ctx)
	}
	for again := false; ; again = true {
		text, number, err := s.awaitToken(ctx)
		if err != nil {
			return err
		}
		shown := ctx
		if text != "" {
			shown = metadata.AppendToOutgoingContext(ctx, tokenField, text)
		}
		if err = call(shown); again || status.Code(err) != codes.Unauthenticated {
			return err
		}
		if s.renewToken(ctx, number) != nil {
			return err
		}
	}
}

// tokenField is where the metadata of a call has a token, as in the etcd API.
const tokenField = "token"

// unauthenticated decides what follows the answer that a server does not know the client.
func (a *attempt) unauthenticated() (_ *Error, again *Backoff) {
	if a.sender.identity.source == nil || a.reidentified {
		return a.ended(nil), nil
	}
	a.reidentified = true
	return nil, &identityBackoff
}

// reidentify gets a new token before the next attempt.
func (a *attempt) reidentify(ctx context.Context) error {
	err := a.sender.renewToken(ctx, a.token)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		a.note(kvpb.ErrorCode_UNAUTHENTICATED, wire.Reason(err), a.last.partition, a.last.node)
		return a.ended(nil)
	}
	return a.ended(ctx.Err())
}
