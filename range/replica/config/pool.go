package config

import "sync"

// Pool runs functions on a bounded number of goroutines, which exist only while there is something
// to run. A node has one for all its replicas.
type Pool struct {
	limit, queued int

	mu struct {
		sync.Mutex
		queue   []func()
		running int
		closed  bool
	}
	// idle is signalled when running falls to 0. It uses mu.
	idle *sync.Cond
}

// NewPool returns a pool that runs up to limit functions at once and holds up to queued more.
func NewPool(limit, queued int) *Pool {
	p := &Pool{limit: max(limit, 1), queued: max(queued, 0)}
	p.idle = sync.NewCond(&p.mu)
	return p
}

// Go runs f soon. It returns false, and f will not be run, if too many are waiting or the pool is
// closed.
func (p *Pool) Go(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.closed:
		return false
	case p.mu.running < p.limit:
		p.mu.running++
		go p.work(f)
		return true
	case len(p.mu.queue) < p.queued:
		p.mu.queue = append(p.mu.queue, f)
		return true
	}
	return false
}

func (p *Pool) work(f func()) {
	for {
		f()
		p.mu.Lock()
		if len(p.mu.queue) == 0 {
			if p.mu.running--; p.mu.running == 0 {
				p.idle.Broadcast()
			}
			p.mu.queue = nil
			p.mu.Unlock()
			return
		}
		f, p.mu.queue[0] = p.mu.queue[0], nil
		p.mu.queue = p.mu.queue[1:]
		p.mu.Unlock()
	}
}

// Close refuses new functions and waits for those that are queued. The replicas that use the pool
// are closed first.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.Wait()
}

// Wait waits until nothing runs.
func (p *Pool) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mu.running > 0 {
		p.idle.Wait()
	}
}
