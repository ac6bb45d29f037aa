// Package helm holds the checks of the chart in the folder tidemark. It is a module of its own, so
// that the libraries of Helm and Kubernetes are no dependencies of the database.
//
// `make helm-check` runs them, and needs no Kubernetes cluster: the chart is rendered as Helm
// renders it, each manifest is decoded strictly into the type that the API server has for it, and
// the objects are checked against each other and against the program, bin/tidemark, whose flags
// they give.
package helm
