{{- /* The command line of a server: {root, set}. */ -}}
{{- define "tidemark.args" -}}
{{- $root := .root -}}
{{- $set := .set -}}
{{- $values := $root.Values -}}
{{- $of := ternary $values.core $values.nodes (eq $set.component "core") -}}
{{- $domain := include "tidemark.domain" (dict "root" $root "component" $set.component) -}}
- start
- --dir=/var/lib/tidemark
- --listen=:{{ $values.ports.tidemark }}
- --advertise=$(POD_NAME).{{ $domain }}:{{ $values.ports.tidemark }}
- --core={{ include "tidemark.core" $root }}
{{- if ne $set.component "core" }}
- --roles=node
{{- else if $values.combined }}
- --roles=core,node
{{- else }}
- --roles=core
{{- end }}
- --http=:{{ $values.ports.http }}
{{- $locality := list -}}
{{- if $values.locality.region -}}
  {{- $locality = append $locality (printf "region=%s" $values.locality.region) -}}
{{- end -}}
{{- if $values.locality.fromPodLabels -}}
  {{- $locality = append $locality "zone=$(ZONE)" -}}
{{- else if $set.zone -}}
  {{- $locality = append $locality (printf "zone=%s" $set.zone) -}}
{{- end }}
{{- if $locality }}
- --locality={{ join "," $locality }}
{{- end }}
{{- if $values.tls.enabled }}
- --tls-cert=/etc/tidemark/tls/tls.crt
- --tls-key=/etc/tidemark/tls/tls.key
- --tls-ca=/etc/tidemark/tls/client-ca.crt
- --tls-peer-ca=/etc/tidemark/tls/server-ca.crt
{{- with $values.tls.peerName }}
- --tls-peer-name={{ . }}
{{- end }}
{{- with $values.tls.admins }}
- --tls-admin={{ join "," . }}
{{- end }}
{{- else }}
- --secret-file=/etc/tidemark/secret/cluster.secret
{{- end }}
- --log-level={{ $values.log.level }}
- --log-format={{ $values.log.format }}
{{- range $of.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* Where pods of a kind may be: {root, set}. In a combined cluster all servers are of one kind. */ -}}
{{- define "tidemark.spread" -}}
{{- $values := .root.Values -}}
{{- $set := .set -}}
{{- $root := .root -}}
{{- $keys := list -}}
{{- if and $values.topologySpread.zone (not $set.zone) -}}
  {{- $keys = append $keys (dict "key" "topology.kubernetes.io/zone" "when" $values.topologySpread.zone) -}}
{{- end -}}
{{- if $values.topologySpread.host -}}
  {{- $keys = append $keys (dict "key" "kubernetes.io/hostname" "when" $values.topologySpread.host) -}}
{{- end -}}
{{- range $keys }}
- maxSkew: 1
  topologyKey: {{ .key }}
  whenUnsatisfiable: {{ .when }}
  labelSelector:
    matchLabels:
      {{- include "tidemark.selectorLabels" $root | nindent 6 }}
      {{- if not $values.combined }}
      app.kubernetes.io/component: {{ $set.component }}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "tidemark.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" .root.Values.tls.enabled }}
{{ toYaml .values }}
{{- end -}}

{{- /* A StatefulSet: {root, set}. Its pods' template holds nothing that differs between versions of
the chart by itself, since that would restart all servers. */ -}}
{{- define "tidemark.statefulset" -}}
{{- $root := .root -}}
{{- $set := .set -}}
{{- $values := $root.Values -}}
{{- $of := ternary $values.core $values.nodes (eq $set.component "core") -}}
{{- $spread := include "tidemark.spread" . | trim -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ include "tidemark.fullname" $root }}-{{ $set.name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tidemark.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $set.component }}
    tidemark/set: {{ $set.name }}
spec:
  serviceName: {{ include "tidemark.headless" (dict "root" $root "component" $set.component) }}
  replicas: {{ $set.replicas }}
  podManagementPolicy: Parallel
  minReadySeconds: {{ $values.minReadySeconds }}
  revisionHistoryLimit: 5
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      # Pods from this number on take a new version.
      partition: {{ ternary $set.replicas 0 $set.held }}
  persistentVolumeClaimRetentionPolicy:
    whenDeleted: Retain
    whenScaled: Retain
  selector:
    matchLabels:
      {{- include "tidemark.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $set.component }}
      tidemark/set: {{ $set.name }}
  template:
    metadata:
      labels:
        {{- with $of.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- include "tidemark.selectorLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $set.component }}
        tidemark/set: {{ $set.name }}
      {{- with $of.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "tidemark.serviceAccountName" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
      securityContext:
        {{- toYaml $values.podSecurityContext | nindent 8 }}
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $of.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- if or $set.zone $of.nodeSelector }}
      nodeSelector:
        {{- with $of.nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $set.zone }}
        topology.kubernetes.io/zone: {{ . | quote }}
        {{- end }}
      {{- end }}
      {{- with $of.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $of.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $spread }}
      topologySpreadConstraints:
        {{- . | nindent 8 }}
      {{- end }}
      containers:
        - name: tidemark
          image: {{ include "tidemark.image" $root | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          {{- with $values.image.command }}
          command:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          args:
            {{- include "tidemark.args" . | nindent 12 }}
          env:
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            {{- if $values.locality.fromPodLabels }}
            - name: ZONE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.labels['topology.kubernetes.io/zone']
            {{- end }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: tidemark
              containerPort: {{ $values.ports.tidemark }}
            - name: http
              containerPort: {{ $values.ports.http }}
          startupProbe:
            {{- include "tidemark.probe" (dict "root" $root "path" "/livez" "values" $values.startupProbe) | nindent 12 }}
          livenessProbe:
            {{- include "tidemark.probe" (dict "root" $root "path" "/livez" "values" $values.livenessProbe) | nindent 12 }}
          readinessProbe:
            {{- include "tidemark.probe" (dict "root" $root "path" "/readyz" "values" $values.readinessProbe) | nindent 12 }}
          securityContext:
            {{- toYaml $values.securityContext | nindent 12 }}
          resources:
            {{- toYaml $of.resources | nindent 12 }}
          volumeMounts:
            - name: data
              mountPath: /var/lib/tidemark
            {{- if $values.tls.enabled }}
            - name: tls
              mountPath: /etc/tidemark/tls
              readOnly: true
            {{- else }}
            - name: secret
              mountPath: /etc/tidemark/secret
              readOnly: true
            {{- end }}
      volumes:
        {{- if $values.tls.enabled }}
        - name: tls
          projected:
            # The group of the pod may read them (fsGroup).
            defaultMode: 0440
            sources:
              - secret:
                  name: {{ include "tidemark.tlsSecretName" (dict "root" $root "component" $set.component) }}
                  items:
                    - key: tls.crt
                      path: tls.crt
                    - key: tls.key
                      path: tls.key
              {{- include "tidemark.caSource" (dict "path" "server-ca.crt" "from" (include "tidemark.peerCA" (dict "root" $root "component" $set.component) | fromJson)) | nindent 14 }}
              {{- include "tidemark.caSource" (dict "path" "client-ca.crt" "from" (include "tidemark.clientCA" $root | fromJson)) | nindent 14 }}
        {{- else }}
        - name: secret
          secret:
            secretName: {{ include "tidemark.clusterSecretName" $root }}
            defaultMode: 0440
            items:
              - key: {{ ternary $values.clusterSecret.key "cluster.secret" (not (empty $values.clusterSecret.existingSecret)) }}
                path: cluster.secret
        {{- end }}
  volumeClaimTemplates:
    - metadata:
        name: data
        labels:
          {{- include "tidemark.selectorLabels" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $set.component }}
          tidemark/set: {{ $set.name }}
      spec:
        accessModes:
          - ReadWriteOnce
        {{- with $of.storage.storageClassName }}
        storageClassName: {{ . }}
        {{- end }}
        resources:
          requests:
            storage: {{ $of.storage.size }}
{{- end -}}
