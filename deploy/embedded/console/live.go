package console

import (
	"fmt"
	"net/http"
	"time"
)

// live sends the feeds that a page asks for (?feed=cluster&feed=events) as server-sent events, each
// with the name of its feed. A page that reads slowly gets only the newest answers.
func (c *Console) live(w http.ResponseWriter, r *http.Request, v *viewer) {
	names := r.URL.Query()["feed"]
	if len(names) == 0 || len(names) > feedsOfStream {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("a stream has 1 to %d feeds", feedsOfStream))
		return
	}
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, errManyFeeds.Error())
		return
	}
	news := make(chan struct{}, 1)
	following := map[string]*feed{}
	for _, name := range names {
		if following[name] != nil {
			continue
		}
		f, err := c.hub.follow(v, name, news)
		if err != nil {
			status := http.StatusServiceUnavailable
			if err == errNoTopic {
				status = http.StatusNotFound
			}
			refuse(w, status, err.Error())
			return
		}
		defer c.hub.leave(v, name, news)
		following[name] = f
	}
	defer v.hold()()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out := &stream{w: w, control: http.NewResponseController(w)}
	if out.send("retry: 2000\n\n") != nil {
		return
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	versions := map[string]uint64{}
	for {
		over, sent := c.over(v), false
		for name, f := range following {
			data, version := f.since(versions[name])
			if versions[name] = version; data == nil {
				continue
			}
			if out.send("event: ", name, "\ndata: ", string(data), "\n\n") != nil {
				return
			}
			sent = true
		}
		if over && sent {
			return // the page has the reason, and asks for the session
		}
		select {
		case <-news:
		case <-alive.C:
			if c.over(v) || out.send(": still here\n\n") != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// stream writes events, and ends if a page does not read.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s *stream) send(parts ...string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writing)); err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := s.w.Write([]byte(part)); err != nil {
			return err
		}
	}
	return s.control.Flush()
}
