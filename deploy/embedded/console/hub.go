package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// question reads the data of a feed from the cluster. The answer is encoded as JSON.
type question func(ctx context.Context, v *viewer, cluster Cluster, p url.Values) (any, error)

// topic is a kind of feed.
type topic struct {
	ask question
	// every is the pause between two questions. It is longer if the questions are expensive.
	every time.Duration
}

// hub has the feeds that streams follow.
type hub struct {
	topics map[string]topic
	// allowed returns an error if a viewer may not see the console any more. Authentication may be
	// enabled at any time.
	allowed func(context.Context, *viewer) error

	ctx     context.Context
	running sync.WaitGroup
	mu      sync.Mutex
	feeds   map[feedKey]*feed
}

// feedKey identifies a feed. The viewer is part of the key, because viewers see different data.
type feedKey struct {
	viewer *viewer
	name   string
}

// feed asks one question repeatedly, as long as it has followers.
type feed struct {
	cancel context.CancelFunc

	mu sync.Mutex
	// followers are the channels that are signalled when there is a new answer.
	followers map[chan struct{}]struct{}
	// latest is the newest answer as JSON, or nil before the first answer. version counts the answers.
	latest  []byte
	version uint64
}

var (
	errManyFeeds = errors.New("this server shows as much at a time as it can: close some pages")
	errNoTopic   = errors.New("there is no feed of that name")
)

// follow makes a feed signal a channel. It starts the feed if the feed does not run.
func (h *hub) follow(v *viewer, name string, news chan struct{}) (*feed, error) {
	kind, query, _ := strings.Cut(name, "?")
	t, ok := h.topics[kind]
	parameters, err := url.ParseQuery(query)
	if !ok || err != nil || len(name) > maxFeedName || strings.ContainsAny(name, "\r\n") {
		return nil, errNoTopic
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := feedKey{v, name}
	f := h.feeds[key]
	if f == nil {
		if len(h.feeds) >= maxFeeds || h.ctx.Err() != nil {
			return nil, errManyFeeds
		}
		ctx, cancel := context.WithCancel(h.ctx)
		f = &feed{cancel: cancel, followers: map[chan struct{}]struct{}{}}
		h.feeds[key] = f
		h.running.Go(func() { h.run(ctx, f, v, t, parameters) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers[news] = struct{}{}
	return f, nil
}

// leave undoes follow. The feed ends with its last follower.
func (h *hub) leave(v *viewer, name string, news chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := feedKey{v, name}
	f := h.feeds[key]
	if f == nil {
		return
	}
	f.mu.Lock()
	delete(f.followers, news)
	left := len(f.followers)
	f.mu.Unlock()
	if left == 0 {
		f.cancel()
		delete(h.feeds, key)
	}
}

// run asks until the feed ends.
func (h *hub) run(ctx context.Context, f *feed, v *viewer, t topic, p url.Values) {
	defer v.hold()()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		f.publish(h.answer(ctx, v, t.ask, p))
		pause.Reset(max(t.every, min(time.Since(began)*restAfter, longestRest)))
	}
}

// message is an answer as a feed sends it.
type message struct {
	Data any `json:"data,omitempty"`
	// Error says why there is no answer, as a sentence.
	Error string `json:"error,omitempty"`
	// Denied: the user may not see the answer.
	Denied bool `json:"denied,omitempty"`
}

// answer asks once.
func (h *hub) answer(ctx context.Context, v *viewer, ask question, p url.Values) message {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	if err := h.allowed(ctx, v); err != nil {
		return message{Error: err.Error(), Denied: true}
	}
	cluster, err := v.ask(ctx)
	if err != nil {
		return failed(err)
	}
	data, err := ask(ctx, v, cluster, p)
	if err != nil {
		return failed(err)
	}
	return message{Data: data}
}

func failed(err error) message {
	denied := errors.Is(err, kv.ErrPermissionDenied) || errors.Is(err, kv.ErrUnauthenticated)
	return message{Error: sentence(err), Denied: denied}
}

// publish signals the followers, if the answer differs from the previous one.
func (f *feed) publish(m message) {
	encoded, err := json.Marshal(m)
	if err != nil {
		encoded, _ = json.Marshal(message{Error: err.Error()})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Equal(encoded, f.latest) {
		return
	}
	f.latest = encoded
	f.version++
	for news := range f.followers {
		select {
		case news <- struct{}{}:
		default: // it was signalled before and has not looked yet
		}
	}
}

// since returns the newest answer if it is newer than a version.
func (f *feed) since(version uint64) ([]byte, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version == version {
		return nil, version
	}
	return f.latest, f.version
}

// end waits for the end of all feeds. The context of the hub must have ended before.
func (h *hub) end() { h.running.Wait() }
