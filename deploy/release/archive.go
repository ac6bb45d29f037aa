package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const checksumFile = "SHA256SUMS"

// writeArchive writes the archive of a platform: the program, and the kit beside it.
func (r *release) writeArchive(p platform) error {
	name := r.file(p.String())
	program, err := os.ReadFile(r.binary(p))
	if err != nil {
		return err
	}
	files := maps.Clone(r.kit)
	files["tidemark"] = program
	out, err := os.Create(filepath.Join(r.out, name+".tar.gz"))
	if err != nil {
		return err
	}
	return errors.Join(writeTar(out, name, files, r.when), out.Close())
}

// writeTar writes a compressed archive of files in a folder. Its bytes depend on the arguments
// only: the files are sorted, belong to root, and have one time and one of two modes.
func writeTar(out io.Writer, folder string, files map[string][]byte, when time.Time) error {
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	add := func(header tar.Header, content []byte) error {
		header.ModTime, header.Format = when, tar.FormatUSTAR
		header.Uname, header.Gname = "root", "root"
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	folders := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		name, content := path.Join(folder, name), files[name]
		for _, parent := range parents(name) {
			if folders[parent] {
				continue
			}
			folders[parent] = true
			if err := add(tar.Header{Typeflag: tar.TypeDir, Name: parent + "/", Mode: 0o755},
				nil); err != nil {
				return err
			}
		}
		mode := int64(0o644)
		if path.Base(name) == "tidemark" && path.Dir(name) == folder {
			mode = 0o755
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode,
			Size: int64(len(content))}, content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// parents returns the folders above a name, from the top.
func parents(name string) []string {
	var all []string
	for i := range name {
		if name[i] == '/' {
			all = append(all, name[:i])
		}
	}
	return all
}

// writeChecksums writes SHA256SUMS of all files in a folder, as `sha256sum --check` reads it.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries { // sorted by name
		sum, err := checksum(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(dir, checksumFile), []byte(sums.String()), 0o644)
}

func checksum(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return hash.Sum(nil), err
}
