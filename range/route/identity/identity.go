package identity

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/route/lifetime"
)

const (
	// tokenAge is the time between two tokens. One is good for 5 minutes.
	tokenAge = 2 * time.Minute
	// tokenTimeout bounds the call for one. tokenPatience is how long a new stream waits for it.
	tokenTimeout  = 10 * time.Second
	tokenPatience = 3 * time.Second
	// tokenAgain is the time between two calls while there is no token because no server answers, and
	// after one that was refused.
	tokenAgain = 5 * time.Second
)

// Config is what an Identity needs of its sender.
type Config struct {
	// Source gets a token; "": there is none. It is called by one goroutine at a time. nil: the
	// client names no user.
	Source func(context.Context) (string, error)
	// Show shows a token on the streams to nodes that are open.
	Show func(token string)
	// Life is the sender's.
	Life   *lifetime.Lifetime
	Logger *slog.Logger
}

// Identity is what is known of the client's user. Its methods may be called from any goroutine.
type Identity struct {
	cfg Config
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

// New makes an Identity. Run gets tokens from then on.
func New(cfg Config) *Identity { return &Identity{cfg: cfg, news: make(chan struct{}, 1)} }

// Named reports whether the client names a user.
func (i *Identity) Named() bool { return i.cfg.Source != nil }

// News gets a value when there is another token to be shown on the stream of the table.
func (i *Identity) News() <-chan struct{} { return i.news }

// Shown is the number of the latest token that every open stream to a node has been shown.
func (i *Identity) Shown() uint64 { return i.shown.Load() }

// Known is the latest token and its number; "" and 0 if there was none.
func (i *Identity) Known() (text string, number uint64) {
	if t := i.latest.Load(); t != nil {
		return t.text, t.number
	}
	return "", 0
}

// Await returns the latest token, and waits for the first one. Its error is why there is none.
func (i *Identity) Await(ctx context.Context) (text string, number uint64, err error) {
	text, number = i.Known()
	if i.cfg.Source == nil || number > 0 {
		return text, number, nil
	}
	if err := i.Renew(ctx, 0); err != nil {
		return "", 0, err
	}
	text, number = i.Known()
	return text, number, nil
}

// AwaitFirst waits, for a moment, until the first token is there. Its error is that there will be
// none: the password is wrong. That no server answers is no error.
func (i *Identity) AwaitFirst(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	_, _, err := i.Await(ctx)
	if err == nil || ctx.Err() != nil || Passing(err) {
		return nil
	}
	return err
}

// ForStream is the token for a stream that is opened. It waits until the first call for one
// has ended; the stream goes without if there is none.
func (i *Identity) ForStream(ctx context.Context) string {
	text, number := i.Known()
	if number > 0 {
		return text
	}
	i.mu.Lock()
	tried := i.tried
	i.mu.Unlock()
	if tried {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	text, _, _ = i.Await(ctx)
	return text
}

// Renew waits until every open stream has been shown a token that is newer than the token of a
// number. A refusal stands for a while: each login with a wrong password costs the core as much as
// one with the right password.
func (i *Identity) Renew(ctx context.Context, than uint64) error {
	for {
		i.mu.Lock()
		if i.shown.Load() > than {
			i.mu.Unlock()
			return nil
		}
		if i.getting == nil {
			if i.err != nil && !Passing(i.err) && time.Since(i.ended) < tokenAgain {
				defer i.mu.Unlock()
				return i.err
			}
			i.getting = make(chan struct{})
			if !i.cfg.Life.Go(i.get) {
				close(i.getting)
				i.getting = nil
				i.mu.Unlock()
				return lifetime.ErrClosed
			}
		}
		over := i.getting
		i.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		case <-i.cfg.Life.Done():
			return lifetime.ErrClosed
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

// get makes the one call that is under way, and shows the token on the open streams.
//
// INVARIANT: new streams use a token before the open streams are shown the token, and no caller is
// told of the token before all of them are: a stream that shows an older token would refuse the
// next attempt of the caller.
func (i *Identity) get() {
	ctx, cancel := context.WithTimeout(i.cfg.Life.Context(), tokenTimeout)
	text, err := i.cfg.Source(ctx)
	cancel()
	_, number := i.Known()
	if err == nil {
		number++
		i.latest.Store(&token{text, number})
		select {
		case i.news <- struct{}{}:
		default:
		}
		i.cfg.Show(text)
	} else {
		i.cfg.Logger.Warn("no token for the client's user", "error", err)
	}
	i.mu.Lock()
	i.err, i.tried, i.ended = err, true, time.Now()
	i.shown.Store(number)
	close(i.getting)
	i.getting = nil
	i.mu.Unlock()
}

// Run gets tokens until the sender closes.
func (i *Identity) Run() {
	life := i.cfg.Life
	for {
		wait := tokenAge
		if err := i.Renew(life.Context(), i.shown.Load()); err != nil {
			wait = tokenAgain
		}
		if life.Pause(life.Context(), wait) != nil {
			return
		}
	}
}

// With makes a call of a service with the token in its metadata, and once more with a new one
// if the server does not know the client by it.
func (i *Identity) With(ctx context.Context, call func(context.Context) error) error {
	if i.cfg.Source == nil {
		return call(ctx)
	}
	for again := false; ; again = true {
		text, number, err := i.Await(ctx)
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
		if i.Renew(ctx, number) != nil {
			return err
		}
	}
}

// tokenField is where the metadata of a call has a token, as in the etcd API.
const tokenField = "token"

// Passing reports whether another server, or the same one later, may answer a call that ended with
// an error.
func Passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted:
		return err != nil
	}
	return false
}
