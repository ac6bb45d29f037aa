package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// dist has the pages, as "make console" builds them from app.
//
//go:embed dist
var dist embed.FS

// files serves the pages. All pages of the console are the same document, which shows the page that
// the address names.
type files struct {
	all   map[string]*file
	index *file
}

type file struct {
	plain   []byte
	packed  func() []byte
	kind    string
	etag    string
	forEver bool
}

// kinds maps extensions of files in dist to content types.
var kinds = map[string]string{".html": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}

func readFiles() (*files, error) {
	f := &files{all: map[string]*file{}}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		plain, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			return fmt.Errorf("the console's file %s is of no kind that is served", name)
		}
		sum := sha256.Sum256(plain)
		short := strings.TrimPrefix(name, "dist/")
		f.all[short] = &file{plain: plain, kind: kind, etag: `"` + hex.EncodeToString(sum[:12]) + `"`,
			packed: sync.OnceValue(func() []byte { return pack(plain) }),
			// The name of an asset contains a hash of its content.
			forEver: strings.HasPrefix(short, "assets/")}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if f.index = f.all["index.html"]; f.index == nil {
		return nil, fmt.Errorf("the console's pages were not built: make console")
	}
	return f, nil
}

func pack(plain []byte) []byte {
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
	_, _ = w.Write(plain)                                      // writing to memory does not fail
	_ = w.Close()
	return packed.Bytes()
}

// ServeHTTP implements http.Handler.
func (f *files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "pages are read only", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/console/")
	found := f.all[name]
	switch {
	case found != nil:
	case strings.HasPrefix(name, "assets/") || path.Ext(name) != "":
		http.NotFound(w, r)
		return
	default:
		found = f.index
	}
	h := w.Header()
	h.Set("Content-Type", found.kind)
	h.Set("ETag", found.etag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if found.forEver {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == found.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := found.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = found.packed()
	}
	_, _ = w.Write(body) // the caller may be gone
}
