{{- define "prism.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "prism.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels that never change, with the name of a process. */}}
{{- define "prism.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .process }}
{{- end -}}

{{- define "prism.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "prism.name" .) -}}
{{- end -}}

{{- define "prism.sparkServiceAccount" -}}
{{- .Values.sparkConnect.serviceAccount.name | default (printf "%s-spark" (include "prism.name" .)) -}}
{{- end -}}

{{- define "prism.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote -}}
{{- end -}}

{{- define "prism.sparkImage" -}}
{{- printf "%s:%s" .Values.sparkConnect.image.repository (.Values.sparkConnect.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* The settings of the values, entry by entry. They stand in each pod, so that a change rolls the pods. */}}
{{- define "prism.settings" -}}
- {name: PRISM_TABLES_DIR, value: /opt/prism/tables}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* The settings, and the variables of the secret. */}}
{{- define "prism.environment" -}}
env: {{- include "prism.settings" . | nindent 2 }}
{{- if .Values.settingsSecret }}
envFrom:
  - secretRef: {name: {{ .Values.settingsSecret }}}
{{- end }}
{{- end -}}

{{/* Nothing is written but temporary files, and nothing runs as root. */}}
{{- define "prism.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "prism.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "prism.mounts" -}}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.tablesConfigMap }}
  - {name: tables, mountPath: /opt/prism/tables, readOnly: true}
  {{- end }}
{{- end -}}

{{- define "prism.volumes" -}}
volumes:
  - {name: tmp, emptyDir: {}}
  {{- if .Values.tablesConfigMap }}
  - {name: tables, configMap: {name: {{ .Values.tablesConfigMap }}}}
  {{- end }}
{{- end -}}
