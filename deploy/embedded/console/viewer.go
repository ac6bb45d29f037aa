package console

import (
	"context"
	"errors"
	"sync"
	"time"
)

// viewer is a user as which the cluster is asked. The connections to the cluster are opened by the
// first question, and closed viewerIdle after the last hold of the viewer has ended.
type viewer struct {
	// user is empty without users.
	user string
	open func(ctx context.Context) (Cluster, error)
	// known has the answers that feeds share. past has the work of nodes.
	known known
	past  past

	// opening is held while a connection is opened.
	opening chan struct{}
	mu      sync.Mutex
	cluster Cluster
	holds   int
	// idle is the timer that closes the cluster. It is nil while the viewer is held.
	idle   *time.Timer
	closed bool
}

func newViewer(user string, open func(context.Context) (Cluster, error)) *viewer {
	return &viewer{user: user, open: open, opening: make(chan struct{}, 1)}
}

// errViewerClosed is the error of questions after a logout, or after the console was closed.
var errViewerClosed = errors.New("the session has ended")

// hold keeps the connections open until release is called, once.
func (v *viewer) hold() (release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.holds++
	if v.idle != nil {
		v.idle.Stop()
		v.idle = nil
	}
	return v.release
}

func (v *viewer) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holds--; v.holds > 0 || v.closed || v.cluster == nil {
		return
	}
	v.idle = time.AfterFunc(viewerIdle, func() { v.drop(false) })
}

// drop closes the connections of a viewer that is not held. With forGood it closes them
// permanently, even if the viewer is held.
func (v *viewer) drop(forGood bool) {
	v.mu.Lock()
	if !forGood && v.holds > 0 {
		v.mu.Unlock()
		return
	}
	cluster := v.cluster
	v.cluster, v.closed = nil, v.closed || forGood
	if v.idle != nil {
		v.idle.Stop()
		v.idle = nil
	}
	v.mu.Unlock()
	v.known.forget()
	v.past.forget()
	if cluster != nil {
		_ = cluster.Close()
	}
}

// ask returns the cluster. The caller must hold the viewer.
func (v *viewer) ask(ctx context.Context) (Cluster, error) {
	if cluster, err := v.present(); cluster != nil || err != nil {
		return cluster, err
	}
	select {
	case v.opening <- struct{}{}:
		defer func() { <-v.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if cluster, err := v.present(); cluster != nil || err != nil {
		return cluster, err
	}
	cluster, err := v.open(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	if !v.closed {
		v.cluster = cluster
		v.mu.Unlock()
		return cluster, nil
	}
	v.mu.Unlock()
	_ = cluster.Close()
	return nil, errViewerClosed
}

func (v *viewer) present() (Cluster, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, errViewerClosed
	}
	return v.cluster, nil
}
